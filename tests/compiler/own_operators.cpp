// SPDX-License-Identifier: MIT
// The operators of own_new.cpp.
#include <cstdint>
#include <cstdlib>
#include <new>

extern long live;
long live;

void *operator new(std::size_t size)
{
	auto *block = static_cast<uint64_t *>(std::malloc(size + 16));

	if (!block)
		throw std::bad_alloc();
	block[0] = 0x636f6d65;
	live++;
	return block + 2;
}

void operator delete(void *at) noexcept
{
	auto *block = static_cast<uint64_t *>(at);

	if (!at)
		return;
	if (block[-2] != 0x636f6d65)
		std::abort();
	block[-2] = 0;
	live--;
	std::free(block - 2);
}
