/* SPDX-License-Identifier: MIT */
#include "function_search.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "elf_file.h"
#include "loaded.h"

struct search {
	char text[96];      /* OBJECT:SYMBOL, cut in two */
	const char *object; /* NULL: the program, then all that it loads */
	const char *symbol; /* or 0xOFFSET */
	struct found_function *out;
	bool object_seen;
};

static bool search_file(struct search *s, const char *path)
{
	struct elf_file f;
	bool found;
	char *end;

	if (!strncmp(s->symbol, "0x", 2)) {
		errno = 0;
		s->out->address = strtoul(s->symbol, &end, 16);
		found = !*end && s->symbol[2] && !errno;
	} else {
		if (elf_open(&f, path) < 0)
			return false;
		found = elf_symbol(&f, s->symbol, &s->out->address);
		elf_close(&f);
	}
	snprintf(s->out->path, sizeof(s->out->path), "%s", path);
	return found;
}

static bool search_loaded(void *arg, const char *name, const char *path)
{
	struct search *s = arg;

	if (s->object && !loaded_is(s->object, name, path))
		return false;
	s->object_seen = true;
	snprintf(s->out->object, sizeof(s->out->object), "%s", elf_base_name(path));
	return search_file(s, path);
}

static bool search_function(struct search *s, const char *program)
{
	const char *interpreter;
	char linker[PATH_MAX];
	struct elf_file f;

	if (!s->object && search_file(s, program))
		return true;
	/* An offset without an object is the program's. */
	if ((!s->object && !strncmp(s->symbol, "0x", 2)) || elf_open(&f, program) < 0)
		return false;
	if (elf_kind_of(&f, &interpreter) != ELF_DYNAMIC || !interpreter)
		interpreter = "";
	snprintf(linker, sizeof(linker), "%s", interpreter);
	elf_close(&f);
	return *linker && loaded_each(linker, program, search_loaded, s);
}

static void search_begin(struct search *s, const char *text, struct found_function *out)
{
	char *colon, *slash;

	memset(s, 0, sizeof(*s));
	memset(out, 0, sizeof(*out));
	s->out = out;
	snprintf(s->text, sizeof(s->text), "%s", text);
	slash = strrchr(s->text, '/');
	if (slash)
		*slash = '\0';
	colon = strchr(s->text, ':');
	s->symbol = colon ? colon + 1 : s->text;
	if (colon) {
		*colon = '\0';
		s->object = s->text;
	}
}

const char *function_find(const char *text, const char *program, struct found_function *out)
{
	struct search s;

	search_begin(&s, text, out);
	if (search_function(&s, program))
		return NULL;
	if (s.object && !s.object_seen)
		return "the program does not load this object at its start";
	return s.object ? "no such function in the object"
			: "no such function in the program or what it loads";
}
