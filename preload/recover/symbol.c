/* SPDX-License-Identifier: MIT */
/*
 * An address as function+offset. The loaded object that holds it is found in the map, and its
 * dynamic symbols are read from memory. If none of them fits, the other symbols (static functions)
 * are read from its file, unless that is stripped. No libc: dladdr takes locks, and the program may
 * have crashed inside them. Everything is read through the kernel, because a program that has
 * crashed may have overwritten any of it.
 */
#include <elf.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "recover/recover.h"

struct object {
	uintptr_t base;  /* where its ELF header is */
	uintptr_t bias;  /* address minus p_vaddr */
	/* addresses, or offsets in the file */
	uintptr_t symtab, strtab, hash, gnu_hash;
	uint32_t symbol_count;
	uint64_t inode;
	char name[64];
};

/* Of the program's memory (file -1), or of an object's file. */
static bool source_read(int file, void *dst, uintptr_t at, size_t len)
{
	if (file < 0)
		return crn_user_peek(dst, at, len) == 0;
	return crn_sys4(SYS_pread64, file, dst, len, at) == (long)len;
}

/*
 * What was read of the program in one call: its tables are walked entry by entry. Never more than
 * the rest of a page, so that the end of a mapping is no error.
 */
struct window {
	uintptr_t begin, end;
	uint8_t bytes[CRN_PAGE_SIZE];
};

static bool window_read(struct window *w, void *dst, uintptr_t at, size_t len)
{
	if (at < w->begin || at + len > w->end) {
		size_t rest = crn_page_down(at) + CRN_PAGE_SIZE - at;

		w->begin = w->end = 0;
		if (rest < len)
			return crn_user_peek(dst, at, len) == 0;
		if (crn_user_peek(w->bytes, at, rest) < 0)
			return false;
		w->begin = at;
		w->end = at + rest;
	}
	crn_copy(dst, w->bytes + (at - w->begin), len);
	return true;
}

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
 * inode. *path is its file's, valid until the map is read again.
 */
static bool find_object(uintptr_t address, struct object *o, const char **path)
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
	o->inode = inode;
	crn_format(o->name, sizeof(o->name), "%s", last_component(m.name));
	*path = m.name;
	return true;
}

static bool read_dynamic(struct object *o, struct window *w)
{
	Elf64_Ehdr header;
	Elf64_Phdr p;
	uintptr_t dynamic = 0;
	Elf64_Dyn d;

	if (crn_user_peek(&header, o->base, sizeof(header)) < 0 || header.e_ident[0] != 0x7f ||
	    header.e_phentsize != sizeof(p))
		return false;
	o->bias = header.e_type == ET_DYN ? o->base : 0;
	for (unsigned i = 0; i < header.e_phnum; i++)
		if (window_read(w, &p, o->base + header.e_phoff + i * sizeof(p), sizeof(p)) &&
			p.p_type == PT_DYNAMIC)
			dynamic = o->bias + p.p_vaddr;
	if (!dynamic)
		return false;
	for (unsigned i = 0; i < 256 && window_read(w, &d, dynamic + i * sizeof(d), sizeof(d));
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
static uint32_t symbol_count(const struct object *o, struct window *w)
{
	uint32_t head[4], last = 0, word;
	uintptr_t buckets, chains;

	if (o->hash && crn_user_peek(head, o->hash, 8) == 0)
		return head[1];
	if (!o->gnu_hash || crn_user_peek(head, o->gnu_hash, sizeof(head)) < 0)
		return 0;
	buckets = o->gnu_hash + 16 + head[2] * 8ul;
	chains = buckets + head[0] * 4ul;
	for (uint32_t i = 0; i < head[0]; i++)
		if (window_read(w, &word, buckets + i * 4ul, 4) && word > last)
			last = word;
	if (last < head[1])
		return head[1];
	do {
		if (!window_read(w, &word, chains + (last - head[1]) * 4ul, 4))
			return last;
		last++;
	} while (!(word & 1));
	return last;
}

static bool nearest(const struct object *o, uintptr_t address, Elf64_Sym *best, int file)
{
	uint32_t count = CRN_MIN(o->symbol_count, 1u << 20);
	Elf64_Sym chunk[512];

	for (uint32_t i = 0; i < count; i += CRN_ARRAY_SIZE(chunk)) {
		uint32_t n = CRN_MIN(count - i, (uint32_t)CRN_ARRAY_SIZE(chunk));

		if (!source_read(file, chunk, o->symtab + i * sizeof(*chunk), n * sizeof(*chunk)))
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

/* Where the file has its symbols, if it has any. */
static bool read_sections(struct object *o, int file)
{
	Elf64_Ehdr header;
	Elf64_Shdr s, strings;

	if (!source_read(file, &header, 0, sizeof(header)) || header.e_shentsize != sizeof(s))
		return false;
	for (unsigned i = 0; i < header.e_shnum; i++) {
		uintptr_t at = header.e_shoff + i * sizeof(s);

		if (!source_read(file, &s, at, sizeof(s)) || s.sh_type != SHT_SYMTAB)
			continue;
		at = header.e_shoff + s.sh_link * sizeof(s);
		if (s.sh_link >= header.e_shnum ||
			!source_read(file, &strings, at, sizeof(strings)))
			return false;
		o->symtab = s.sh_offset;
		o->symbol_count = (uint32_t)(s.sh_size / sizeof(Elf64_Sym));
		o->strtab = strings.sh_offset;
		return true;
	}
	return false;
}

/* The file at `path`, or -1 if it is another one than what is mapped. */
static int open_file(const struct object *o, const char *path)
{
	struct crn_fd_identity id;
	int fd = crn_fd_open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);

	if (fd >= 0 && (crn_fd_identify(fd, &id) < 0 || id.ino != o->inode)) {
		crn_fd_close(fd);
		fd = -1;
	}
	return fd < 0 ? -1 : fd;
}

/* The string table may end soon. */
static bool read_name(
	const struct object *o, const Elf64_Sym *s, char *name, size_t size, int file)
{
	for (size_t len = size; len; len /= 2) {
		if (source_read(file, name, o->strtab + s->st_name, len)) {
			name[len - 1] = '\0';
			return true;
		}
	}
	return false;
}

static bool find_symbol(struct object *o, uintptr_t address, const char *path, Elf64_Sym *s,
	char *name, size_t size)
{
	struct window w = {.begin = 0, .end = 0};
	bool found = false;
	int file;

	if (!read_dynamic(o, &w))
		return false;
	o->symbol_count = symbol_count(o, &w);
	if (nearest(o, address, s, -1))
		return read_name(o, s, name, size, -1);
	file = open_file(o, path);
	if (file < 0)
		return false;
	if (read_sections(o, file) && nearest(o, address, s, file))
		found = read_name(o, s, name, size, file);
	crn_fd_close(file);
	return found;
}

/* Static: the agent's image is outside every surface. Crashes of one kind share their pc. */
static uintptr_t known_address;
static char known_name[160];

static void look_up(uintptr_t address, char *out, size_t size)
{
	struct object o = {0};
	const char *path;
	Elf64_Sym s;
	char name[80];

	crn_format(out, size, "%p", (void *)address);
	if (!crn_agent->effects || crn_agent->effects->maps.fd < 0 ||
		!find_object(address, &o, &path))
		return;
	crn_format(out, size, "%s+0x%lx", o.name, address - o.base);
	if (find_symbol(&o, address, path, &s, name, sizeof(name)))
		crn_format(out, size, "%s+0x%lx (%s)", name,
			address - o.bias - s.st_value, o.name);
}

/* From fault handlers, under the effects' lock. The map may have changed: code rarely moves. */
void crn_symbol(uintptr_t address, char *out, size_t size)
{
	if (!known_address || known_address != address) {
		look_up(address, known_name, sizeof(known_name));
		known_address = address;
	}
	crn_format(out, size, "%s", known_name);
}
