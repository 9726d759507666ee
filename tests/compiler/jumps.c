/* SPDX-License-Identifier: MIT */
/* What setjmp and its like save is kept before, and comes back. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cairn/cairn.h>

static jmp_buf at, *in_heap;
static sigjmp_buf with_signals;

__attribute__((noinline)) static void set(int depth)
{
	char frame[100];

	if (depth > 0) {
		memset(frame, depth, sizeof(frame));
		set(depth - 1);
		__asm__ volatile("" ::"r"(frame) : "memory");
	} else if (setjmp(at) + setjmp(*in_heap) + sigsetjmp(with_signals, 1)) {
		longjmp(at, 1);
	}
}

int main(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	char was[3][sizeof(sigjmp_buf)];
	uint64_t id;
	cairn_t *c;

	in_heap = malloc(sizeof(*in_heap));
	set(1);
	if (cairn_open(&c, &o) < 0 || cairn_checkpoint(c, &id) < 0)
		return 3;
	memcpy(was[0], at, sizeof(at));
	memcpy(was[1], *in_heap, sizeof(at));
	memcpy(was[2], with_signals, sizeof(with_signals));
	if (cairn_rewind(c, id) < 0)
		return 4;
	set(4);
	if (!memcmp(was[0], at, sizeof(at)) || cairn_rewind(c, id) < 0)
		return 5;
	return memcmp(was[0], at, sizeof(at)) || memcmp(was[1], *in_heap, sizeof(at)) ||
		memcmp(was[2], with_signals, sizeof(with_signals));
}
