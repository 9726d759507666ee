/* SPDX-License-Identifier: MIT */
/*
 * An address as function+offset: the loaded object that holds it is found in the map, its dynamic
 * symbols are read from memory. No libc (dladdr takes locks, and the program may have crashed
 * inside them). Everything is read through the kernel, because a program that has crashed may have
 * scribbled over any of it.
 */
#include <elf.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "recover/recover.h"

struct object {
	uintptr_t base;  /* where its ELF header is */
	uintptr_t bias;  /* address minus p_vaddr */
	uintptr_t symtab, strtab, hash, gnu_hash;
	char name[64];
};

static const char *last_component(const char *path)
{
	const char *name = path;

	for (; *path; path++)
		if (*path == '/' && path[1])
			name = path + 1;
	return name;
}

/*
 * The object's first mapping (offset 0) precedes the one that holds the address and has the same
 * inode.
 */
static bool find_object(uintptr_t address, struct object *o)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;
	uintptr_t base = 0;
	uint64_t inode = 0;
	bool found = false;

	if (crn_maps_begin(&e->maps, 0, 0) < 0)
		return false;
	while (!found && crn_maps_next(&e->maps, &m) == 1 && m.begin <= address) {
		if (m.offset == 0 && m.inode) {
			base = m.begin;
			inode = m.inode;
		}
		found = m.end > address;
	}
	if (!found || !m.inode || m.inode != inode)
		return false;
	o->base = base;
	crn_format(o->name, sizeof(o->name), "%s", last_component(m.name));
	return true;
}

static bool read_dynamic(struct object *o)
{
	Elf64_Ehdr header;
	Elf64_Phdr p;
	uintptr_t dynamic = 0;
	Elf64_Dyn d;

	if (crn_user_read(&header, o->base, sizeof(header)) < 0 || header.e_ident[0] != 0x7f ||
	    header.e_phentsize != sizeof(p))
		return false;
	o->bias = header.e_type == ET_DYN ? o->base : 0;
	for (unsigned i = 0; i < header.e_phnum; i++)
		if (crn_user_read(&p, o->base + header.e_phoff + i * sizeof(p), sizeof(p)) == 0 &&
			p.p_type == PT_DYNAMIC)
			dynamic = o->bias + p.p_vaddr;
	if (!dynamic)
		return false;
	for (unsigned i = 0; i < 256 && crn_user_read(&d, dynamic + i * sizeof(d), sizeof(d)) == 0;
		i++) {
		/*
		 * ld.so has added the bias already, except where the section is read-only to it
		 * (the vdso)
		 */
		uintptr_t at = d.d_un.d_ptr < o->base ? o->bias + d.d_un.d_ptr : d.d_un.d_ptr;

		switch (d.d_tag) {
		case DT_NULL: return o->symtab && o->strtab;
		case DT_SYMTAB: o->symtab = at; break;
		case DT_STRTAB: o->strtab = at; break;
		case DT_HASH: o->hash = at; break;
		case DT_GNU_HASH: o->gnu_hash = at; break;
		}
	}
	return false;
}

/* How many symbols there are: DT_HASH says so; DT_GNU_HASH by the end of its longest chain. */
static uint32_t symbol_count(const struct object *o)
{
	uint32_t head[4], last = 0, word;
	uintptr_t buckets, chains;

	if (o->hash && crn_user_read(head, o->hash, 8) == 0)
		return head[1];
	if (!o->gnu_hash || crn_user_read(head, o->gnu_hash, sizeof(head)) < 0)
		return 0;
	buckets = o->gnu_hash + 16 + head[2] * 8ul;
	chains = buckets + head[0] * 4ul;
	for (uint32_t i = 0; i < head[0]; i++)
		if (crn_user_read(&word, buckets + i * 4ul, 4) == 0 && word > last)
			last = word;
	if (last < head[1])
		return head[1];
	do {
		if (crn_user_read(&word, chains + (last - head[1]) * 4ul, 4) < 0)
			return last;
		last++;
	} while (!(word & 1));
	return last;
}

static bool nearest(const struct object *o, uintptr_t address, Elf64_Sym *best)
{
	uint32_t count = CRN_MIN(symbol_count(o), 1u << 20);
	Elf64_Sym chunk[64];

	for (uint32_t i = 0; i < count; i += CRN_ARRAY_SIZE(chunk)) {
		uint32_t n = CRN_MIN(count - i, (uint32_t)CRN_ARRAY_SIZE(chunk));

		if (crn_user_read(chunk, o->symtab + i * sizeof(*chunk), n * sizeof(*chunk)) < 0)
			return false;
		for (uint32_t j = 0; j < n; j++) {
			const Elf64_Sym *s = &chunk[j];
			uintptr_t at = o->bias + s->st_value;

			if (s->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
				at > address || address - at >= CRN_MAX(s->st_size, (Elf64_Xword)1))
				continue;
			*best = *s;
			return true;
		}
	}
	return false;
}

void crn_symbol(uintptr_t address, char *out, size_t size)
{
	struct object o = {0};
	Elf64_Sym s;
	char name[80];
	long n = -1;

	crn_format(out, size, "%p", (void *)address);
	if (!crn_agent->effects || crn_agent->effects->maps.fd < 0 || !find_object(address, &o))
		return;
	crn_format(out, size, "%s+0x%lx", o.name, address - o.base);
	if (!read_dynamic(&o) || !nearest(&o, address, &s))
		return;
	for (size_t len = sizeof(name); len && n < 0; len /= 2) /* the string table may end soon */
		n = crn_user_read(name, o.strtab + s.st_name, len) < 0 ? -1 : (long)len;
	if (n <= 0)
		return;
	name[n - 1] = '\0';
	crn_format(out, size, "%s+0x%lx (%s)", name, address - o.bias - s.st_value, o.name);
}
