/* SPDX-License-Identifier: MIT */
#include "os/object.h"

#include <linux/elf.h>

#include "base/bits.h"
#include "os/memory.h"

#define SEGMENTS_AT_ONCE 8

static bool is_object(const struct elf64_hdr *h)
{
	return h->e_ident[EI_MAG0] == ELFMAG0 && h->e_ident[EI_MAG1] == ELFMAG1 &&
		h->e_ident[EI_MAG2] == ELFMAG2 && h->e_ident[EI_MAG3] == ELFMAG3 &&
		h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_phentsize == sizeof(struct elf64_phdr);
}

static bool peek(void *dst, uintptr_t at, size_t len)
{
	return crn_memory_peek(dst, (const void *)at, len) == (long)len;
}

uintptr_t crn_object_end(uintptr_t header)
{
	struct elf64_phdr segments[SEGMENTS_AT_ONCE];
	struct elf64_hdr h;
	uintptr_t base = header, end = 0;

	if (!peek(&h, header, sizeof(h)))
		return UINTPTR_MAX;
	if (!is_object(&h))
		return 0;
	for (size_t i = 0; i < h.e_phnum; i++) {
		const struct elf64_phdr *s = &segments[i % SEGMENTS_AT_ONCE];

		if (s == segments &&
			!peek(segments, header + h.e_phoff + i * sizeof(*s),
				CRN_MIN(h.e_phnum - i, (size_t)SEGMENTS_AT_ONCE) * sizeof(*s)))
			return UINTPTR_MAX;
		if (s->p_type != PT_LOAD)
			continue;
		if (!s->p_offset) /* it is where the header is */
			base = header - crn_page_down(s->p_vaddr);
		end = CRN_MAX(end, crn_page_up(s->p_vaddr + s->p_memsz));
	}
	return end ? base + end : 0;
}
