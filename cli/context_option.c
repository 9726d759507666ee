/* SPDX-License-Identifier: MIT */
/* --context: site, result, events, fd, reg:NAME or word:REG+OFFSET. */
#include "context_option.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* REG, or with `offset` REG+N; the order is that of struct crn_regs. */
static bool register_option(struct crn_context_spec *c, const char *text, bool offset)
{
	static const char *const names[] = { "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10",
		"r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "rflags", "rsp", "rip" };
	size_t len = strcspn(text, offset ? "+-" : "");
	char *end;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strlen(names[i]) != len || strncmp(names[i], text, len))
			continue;
		c->index = (uint32_t)i;
		errno = 0;
		c->offset = text[len] ? strtoll(text + len, &end, 0) : 0;
		return !text[len] || (!*end && !errno && end > text + len + 1);
	}
	return false;
}

bool context_option(struct crn_context_spec *c, const char *text)
{
	static const char *const names[] = { "none", "site", "result", "events", "fd" };

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(text, names[i])) {
			c->kind = i;
			return true;
		}
	}
	if (!strncmp(text, "reg:", 4)) {
		c->kind = CRN_CONTEXT_REGISTER;
		return register_option(c, text + 4, false);
	}
	c->kind = CRN_CONTEXT_WORD;
	return !strncmp(text, "word:", 5) && register_option(c, text + 5, true);
}
