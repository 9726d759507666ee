/* SPDX-License-Identifier: MIT */
/*
 * operator new and delete of C++, by the names that its compilers give them. Where there is no
 * memory the library's own is asked, which calls the handler, or throws.
 */
#include "rt/heap.h"
#include "rt/wrap.h"

#define ALIGN 16

void __cairn_wrap_free(void *block);

#define NEW(name)                                        \
	void *name(size_t size);                         \
	WRAPPER(void *, name, size_t size)               \
	{                                                \
		void *block = crn_heap_alloc(size, ALIGN); \
                                                         \
		return block ? block : name(size);       \
	}
#define NEW_OR_NULL(name)                                   \
	WRAPPER(void *, name, size_t size, const void *tag) \
	{                                                   \
		return crn_heap_alloc(size, ALIGN);         \
	}
#define NEW_ALIGNED(name)                                                    \
	void *name(size_t size, size_t align);                               \
	WRAPPER(void *, name, size_t size, size_t align)                     \
	{                                                                    \
		void *block = crn_heap_alloc(size, CRN_MAX(align, ALIGN)); \
                                                                             \
		return block ? block : name(size, align);                    \
	}
#define NEW_ALIGNED_OR_NULL(name)                                                 \
	WRAPPER(void *, name, size_t size, size_t align, const void *tag)         \
	{                                                                         \
		return crn_heap_alloc(size, CRN_MAX(align, ALIGN));               \
	}
#define DELETE(name, ...)                             \
	WRAPPER(void, name, void *block, ##__VA_ARGS__) \
	{                                             \
		__cairn_wrap_free(block);             \
	}

DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvSt11align_val_t, size_t align)
DELETE(_ZdaPvSt11align_val_t, size_t align)
DELETE(_ZdlPvRKSt9nothrow_t, const void *tag)
DELETE(_ZdaPvRKSt9nothrow_t, const void *tag)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, size_t align, const void *tag)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, size_t align, const void *tag)

/* Their names have the letter of size_t's type. */
#ifdef __i386__
NEW(_Znwj)
NEW(_Znaj)
NEW_OR_NULL(_ZnwjRKSt9nothrow_t)
NEW_OR_NULL(_ZnajRKSt9nothrow_t)
NEW_ALIGNED(_ZnwjSt11align_val_t)
NEW_ALIGNED(_ZnajSt11align_val_t)
NEW_ALIGNED_OR_NULL(_ZnwjSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_OR_NULL(_ZnajSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdlPvj, size_t size)
DELETE(_ZdaPvj, size_t size)
DELETE(_ZdlPvjSt11align_val_t, size_t size, size_t align)
DELETE(_ZdaPvjSt11align_val_t, size_t size, size_t align)
#else
NEW(_Znwm)
NEW(_Znam)
NEW_OR_NULL(_ZnwmRKSt9nothrow_t)
NEW_OR_NULL(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t)
NEW_ALIGNED(_ZnamSt11align_val_t)
NEW_ALIGNED_OR_NULL(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_OR_NULL(_ZnamSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdlPvm, size_t size)
DELETE(_ZdaPvm, size_t size)
DELETE(_ZdlPvmSt11align_val_t, size_t size, size_t align)
DELETE(_ZdaPvmSt11align_val_t, size_t size, size_t align)
#endif

#define HEADER_SIZE (sizeof(long) == 8 ? 128 : 96) /* what libstdc++ has in front of an exception */

void *__cxa_allocate_exception(size_t size);

/*
 * Programs store to the object: were it libc's, restores would put back the headers of libc's
 * blocks beside it. libstdc++ gives it back by free(3), which the program has its own of.
 */
WRAPPER(void *, __cxa_allocate_exception, size_t size)
{
	char *block = crn_heap_alloc(HEADER_SIZE + size, ALIGN);

	if (!block)
		return __cxa_allocate_exception(size);
	keep(block, HEADER_SIZE + size);
	memset(block, 0, HEADER_SIZE);
	return block + HEADER_SIZE;
}
