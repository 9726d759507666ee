/* SPDX-License-Identifier: MIT */
/*
 * The environment. libc would keep the list and the texts in its own heap, and `environ`, which
 * lies among the program's variables, would lead there after a restore, to what has been freed
 * since. So they are in the program's heap, and come back. What libraries set is theirs, as ever.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "rt/heap.h"
#include "rt/wrap/wrap.h"

#define ALIGN    16
#define ROOM_MIN 64

/* Texts are never freed, as in libc: the program may hold what getenv has returned. */
struct text {
	struct text *next;
	char content[];
};

static struct text *texts;
static char **list; /* of ours; environ, unless somebody else has set that */
static size_t room; /* in it */

static bool is_name(const char *name)
{
	return name && *name && !strchr(name, '=');
}

/* Where it is, from `i` on, or where the list ends. */
static size_t find(const char *name, size_t len, size_t i)
{
	while (environ && environ[i] &&
		(strncmp(environ[i], name, len) != 0 || environ[i][len] != '='))
		i++;
	return i;
}

static char *text_of(const char *name, size_t len, const char *value)
{
	size_t more = strlen(value) + 1;
	struct text *t;

	for (t = texts; t; t = t->next)
		if (!strncmp(t->content, name, len) && t->content[len] == '=' &&
			!strcmp(t->content + len + 1, value))
			return t->content;
	t = crn_heap_alloc(sizeof(*t) + len + 1 + more, ALIGN);
	if (!t)
		return NULL;
	keep(t, sizeof(*t) + len + 1 + more);
	memcpy(t->content, name, len);
	t->content[len] = '=';
	memcpy(t->content + len + 1, value, more);
	t->next = texts;
	OBJECT(&texts)
	texts = t;
	return t->content;
}

/* For `count` entries and the end. */
static bool make_room(size_t count)
{
	size_t have = 0, more = CRN_MAX(2 * count, (size_t)ROOM_MIN);
	char **to;

	while (environ && environ[have])
		have++;
	if (list && environ == list && count < room)
		return true;
	to = crn_heap_alloc(more * sizeof(*to), ALIGN);
	if (!to)
		return false;
	keep(to, more * sizeof(*to));
	if (have)
		memcpy(to, environ, have * sizeof(*to));
	to[have] = NULL;
	if (list && environ == list)
		crn_heap_free(list);
	OBJECT(&list)
	OBJECT(&room)
	OBJECT(&environ)
	environ = list = to;
	room = more;
	return true;
}

static int set(char *text, size_t len)
{
	size_t i = find(text, len, 0);
	bool last = !environ || !environ[i];

	if (last && !make_room(i + 1)) {
		errno = ENOMEM;
		return -1;
	}
	OBJECT(&environ) /* a library may set it to a list of its own, in which this text is, too */
	ARRAY(&environ[i], last ? 2u : 1u)
	environ[i] = text;
	if (last)
		environ[i + 1] = NULL;
	return 0;
}

WRAPPER(int, setenv, const char *name, const char *value, int replace)
{
	size_t len, i;
	char *text;

	if (!is_name(name)) {
		errno = EINVAL;
		return -1;
	}
	len = strlen(name);
	i = find(name, len, 0);
	if (environ && environ[i] && !replace)
		return 0;
	text = text_of(name, len, value); /* a text of putenv is the program's: it may change */
	if (!text) {
		errno = ENOMEM;
		return -1;
	}
	return environ && environ[i] == text ? 0 : set(text, len);
}

WRAPPER(int, unsetenv, const char *name)
{
	size_t len, i = 0;

	if (!is_name(name)) {
		errno = EINVAL;
		return -1;
	}
	len = strlen(name);
	while (i = find(name, len, i), environ && environ[i]) {
		size_t end = i;

		while (environ[end])
			end++;
		ARRAY(&environ[i], end - i)
		memmove(&environ[i], &environ[i + 1], (end - i) * sizeof(*environ));
	}
	return 0;
}

WRAPPER(int, putenv, char *text)
{
	char *sign = strchr(text, '=');

	return sign ? set(text, (size_t)(sign - text)) : __cairn_wrap_unsetenv(text);
}

WRAPPER(int, clearenv, void)
{
	OBJECT(&environ)
	environ = NULL;
	return 0;
}
