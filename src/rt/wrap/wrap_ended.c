/* SPDX-License-Identifier: MIT */
/*
 * Objects of the program, or handles in it, that lead to libc's heap: what libc has there is of use
 * as long as they may come back, so their end is put off.
 */
#include <iconv.h>
#include <locale.h>
#include <malloc.h>
#include <pthread.h>
#include <resolv.h>
#include <spawn.h>
#include <stdlib.h>
#include "rt/deferred.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_ended.h"

/* name_later(what): its end, which is end_it, of n->what, is put off. False: it is due now. */
#define ENDED(type, name, end_it)                                                \
	struct name {                                                            \
		struct crn_ended head;                                           \
		type what;                                                       \
	};                                                                       \
	static void name##_end(struct crn_ended *e)                              \
	{                                                                        \
		struct name *n = (struct name *)e;                               \
                                                                                 \
		(void)end_it;                                                    \
		free(n);                                                         \
	}                                                                        \
	static bool name##_later(type what)                                      \
	{                                                                        \
		struct name *n = __cairn_rt.active ? malloc(sizeof(*n)) : NULL;  \
                                                                                 \
		if (!n)                                                          \
			return false;                                            \
		*n = (struct name){ { name##_end }, what };                      \
		return crn_deferred_add(CRN_ENDED(n));                           \
	}

static const void *const *const called __attribute__((used)) = crn_called;

ENDED(pthread_attr_t, attributes, pthread_attr_destroy(&n->what))
ENDED(posix_spawn_file_actions_t, actions, posix_spawn_file_actions_destroy(&n->what))
ENDED(iconv_t, conversion, iconv_close(n->what))
ENDED(locale_t, locale, (freelocale(n->what), 0))
ENDED(struct __res_state, resolver, (__res_nclose(&n->what), 0))

WRAPPER(int, pthread_attr_destroy, pthread_attr_t *a)
{
	OBJECT(a)
	return attributes_later(*a) ? 0 : pthread_attr_destroy(a);
}

WRAPPER(int, posix_spawn_file_actions_destroy, posix_spawn_file_actions_t *f)
{
	OBJECT(f)
	return actions_later(*f) ? 0 : posix_spawn_file_actions_destroy(f);
}

WRAPPER(int, iconv_close, iconv_t how)
{
	return how != (iconv_t)-1 && conversion_later(how) ? 0 : iconv_close(how);
}

/* Its socket, too, stays open until then. */
WRAPPER(void, __res_nclose, res_state r)
{
	OBJECT(r)
	if (!resolver_later(*r))
		__res_nclose(r);
}

WRAPPER(void, freelocale, locale_t l)
{
	if (!l || !locale_later(l))
		freelocale(l);
}

/* libc changes the base in place: it changes a copy, and the base's end is put off. */
WRAPPER(locale_t, newlocale, int mask, const char *name, locale_t base)
{
	locale_t copy, made;

	if (!base || base == LC_GLOBAL_LOCALE || !__cairn_rt.active)
		return newlocale(mask, name, base);
	copy = duplocale(base);
	made = copy ? newlocale(mask, name, copy) : NULL;
	if (made)
		__cairn_wrap_freelocale(base);
	else if (copy)
		freelocale(copy);
	return made;
}

/* ---- Growth ---------------------------------------------------------------------------------- */

/* A list that libc is going to move: it moves a copy, and the list stays for an older head. */
static void keep_actions(posix_spawn_file_actions_t *f)
{
	size_t size;
	void *copy;

	OBJECT(f)
	if (!__cairn_rt.active || !f->__actions || f->__used != f->__allocated)
		return;
	size = malloc_usable_size(f->__actions);
	copy = malloc(size);
	if (!copy)
		return; /* libc will not find memory either */
	memcpy(copy, f->__actions, size);
	(void)crn_deferred_add(f->__actions);
	f->__actions = copy;
}

#define ADDER(name, parameters, ...)                                    \
	WRAPPER(int, posix_spawn_file_actions_##name, parameters)       \
	{                                                               \
		keep_actions(f);                                        \
		return posix_spawn_file_actions_##name(__VA_ARGS__);    \
	}
#define PARAMETERS(...) posix_spawn_file_actions_t *f, __VA_ARGS__

ADDER(addclose, PARAMETERS(int fd), f, fd)
ADDER(adddup2, PARAMETERS(int fd, int to), f, fd, to)
ADDER(addopen, PARAMETERS(int fd, const char *path, int flags, mode_t mode), f, fd, path, flags,
	mode)
ADDER(addchdir_np, PARAMETERS(const char *path), f, path)
ADDER(addfchdir_np, PARAMETERS(int fd), f, fd)
ADDER(addclosefrom_np, PARAMETERS(int fd), f, fd)
