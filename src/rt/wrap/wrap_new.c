/* SPDX-License-Identifier: MIT */
/*
 * operator new and delete of C++, by the names that its compilers give them. Where there is no
 * memory the library's own is asked, which calls the handler, or throws.
 */
#include "rt/heap.h"
#include "rt/lent_blocks.h"
#include "rt/wrap/wrap.h"

#define ALIGN 16

void __cairn_wrap_free(void *block);

/*
 * The program has an operator new of its own, maybe in a unit that others do not see: all are asked
 * of the linker's, whose defaults call the program's. Those that take an alignment have another.
 */
extern const char __cairn_own_new_on __attribute__((weak));
extern const char __cairn_own_new_aligned_on __attribute__((weak));

#define OWN_NEW         (&__cairn_own_new_on != NULL)
#define OWN_NEW_ALIGNED (&__cairn_own_new_aligned_on != NULL)

#define NEW(name)                                                                   \
	void *name(size_t size);                                                    \
	WRAPPER(void *, name, size_t size)                                          \
	{                                                                           \
		void *block = OWN_NEW ? NULL : crn_program_block(size, ALIGN);      \
                                                                                    \
		return block ? block : name(size);                                  \
	}
#define NEW_OR_NULL(name)                                                           \
	void *name(size_t size, const void *tag);                                   \
	WRAPPER(void *, name, size_t size, const void *tag)                         \
	{                                                                           \
		return OWN_NEW ? name(size, tag) : crn_program_block(size, ALIGN);  \
	}
#define NEW_ALIGNED(name)                                                           \
	void *name(size_t size, size_t align);                                      \
	WRAPPER(void *, name, size_t size, size_t align)                            \
	{                                                                           \
		void *block = NULL;                                                 \
                                                                                    \
		if (!OWN_NEW_ALIGNED)                                               \
			block = crn_program_block(size, CRN_MAX(align, ALIGN));     \
		return block ? block : name(size, align);                           \
	}
#define NEW_ALIGNED_OR_NULL(name)                                                   \
	void *name(size_t size, size_t align, const void *tag);                     \
	WRAPPER(void *, name, size_t size, size_t align, const void *tag)           \
	{                                                                           \
		return OWN_NEW_ALIGNED ? name(size, align, tag)                     \
				       : crn_program_block(size, CRN_MAX(align, ALIGN)); \
	}
#define DELETE_IF(own, name, parameters, arguments)                                 \
	CRN_PRAGMA(weak name)                                                       \
	void name parameters;                                                       \
	CRN_EXPORT void __cairn_wrap_##name parameters;                             \
	void __cairn_wrap_##name parameters                                         \
	{                                                                           \
		if (own)                                                            \
			name arguments;                                             \
		else                                                                \
			__cairn_wrap_free(block);                                   \
	}
#define DELETE(...)         DELETE_IF(OWN_NEW, __VA_ARGS__)
#define DELETE_ALIGNED(...) DELETE_IF(OWN_NEW_ALIGNED, __VA_ARGS__)

DELETE(_ZdlPv, (void *block), (block))
DELETE(_ZdaPv, (void *block), (block))
DELETE_ALIGNED(_ZdlPvSt11align_val_t, (void *block, size_t align), (block, align))
DELETE_ALIGNED(_ZdaPvSt11align_val_t, (void *block, size_t align), (block, align))
DELETE(_ZdlPvRKSt9nothrow_t, (void *block, const void *tag), (block, tag))
DELETE(_ZdaPvRKSt9nothrow_t, (void *block, const void *tag), (block, tag))
DELETE_ALIGNED(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t align, const void *tag),
	(block, align, tag))
DELETE_ALIGNED(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t align, const void *tag),
	(block, align, tag))

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
DELETE(_ZdlPvj, (void *block, size_t size), (block, size))
DELETE(_ZdaPvj, (void *block, size_t size), (block, size))
DELETE_ALIGNED(_ZdlPvjSt11align_val_t, (void *block, size_t size, size_t align),
	(block, size, align))
DELETE_ALIGNED(_ZdaPvjSt11align_val_t, (void *block, size_t size, size_t align),
	(block, size, align))
#else
NEW(_Znwm)
NEW(_Znam)
NEW_OR_NULL(_ZnwmRKSt9nothrow_t)
NEW_OR_NULL(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t)
NEW_ALIGNED(_ZnamSt11align_val_t)
NEW_ALIGNED_OR_NULL(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_OR_NULL(_ZnamSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdlPvm, (void *block, size_t size), (block, size))
DELETE(_ZdaPvm, (void *block, size_t size), (block, size))
DELETE_ALIGNED(_ZdlPvmSt11align_val_t, (void *block, size_t size, size_t align),
	(block, size, align))
DELETE_ALIGNED(_ZdaPvmSt11align_val_t, (void *block, size_t size, size_t align),
	(block, size, align))
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
