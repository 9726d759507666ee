/* SPDX-License-Identifier: MIT */
/* Lines of a stream, in blocks of the program's heap. */
#include <stdio.h>
#include "rt/wrap/wrap_stream_lock.h"
#include "rt/wrap/wrap.h"

void *__cairn_wrap_realloc(void *block, size_t size);

static bool make_room(char **line, size_t *room, size_t need)
{
	char *larger;

	if (*line && *room >= need)
		return true;
	larger = __cairn_wrap_realloc(*line, CRN_MAX(need, CRN_MAX(*room * 2, 120)));
	if (!larger)
		return false;
	keep(line, sizeof(*line));
	keep(room, sizeof(*room));
	*line = larger;
	*room = CRN_MAX(need, CRN_MAX(*room * 2, 120));
	return true;
}

static ssize_t read_locked(char **line, size_t *room, int end, FILE *f)
{
	LOCKED(f);
	size_t done = 0;
	int c = 0;

	/* As glibc has it: an error lasts, and there is a block even if there is no line. */
	if (ferror_unlocked(locked) || (!*line && !make_room(line, room, 1)))
		return -1;
	while (c != EOF && (!done || (*line)[done - 1] != (char)end)) {
		char byte;

		c = getc_unlocked(locked);
		if (c == EOF)
			break;
		byte = (char)c;
		if (!make_room(line, room, done + 2)) {
			done = 0;
			break;
		}
		place(*line + done++, &byte, 1);
	}
	if (!done)
		return -1;
	place(*line + done, "", 1);
	return (ssize_t)done;
}

static ssize_t read_until(char **line, size_t *room, int end, FILE *f)
{
	if (!line || !room) {
		errno = EINVAL;
		return -1;
	}
	return read_locked(line, room, end, f);
}

WRAPPER(ssize_t, getdelim, char **line, size_t *room, int end, FILE *f)
{
	return read_until(line, room, end, f);
}

WRAPPER(ssize_t, __getdelim, char **line, size_t *room, int end, FILE *f)
{
	return read_until(line, room, end, f);
}

WRAPPER(ssize_t, getline, char **line, size_t *room, FILE *f)
{
	return read_until(line, room, '\n', f);
}
