/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "elf_file.h"

#define VERSION_OLD 0x8000 /* not the version that a name alone means */
/* The one encoding that gcc, clang and ld write on x86-64. */
#define EH_HDR_ENCODING   0x1b /* pcrel sdata4: pointer to .eh_frame */
#define EH_COUNT_ENCODING 0x03 /* udata4 */
#define EH_TABLE_ENCODING 0x3b /* datarel sdata4 */

static bool header_is_sane(const struct elf_file *f)
{
	const Elf64_Ehdr *h = f->header;

	return f->size >= sizeof(*h) && !memcmp(h->e_ident, ELFMAG, SELFMAG) &&
		h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_machine == EM_X86_64 &&
		h->e_phentsize == sizeof(Elf64_Phdr) && h->e_phoff < f->size &&
		h->e_phnum <= (f->size - h->e_phoff) / sizeof(Elf64_Phdr);
}

int elf_open(struct elf_file *f, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;
	struct stat st;
	void *p;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(Elf64_Ehdr)) {
		close(fd);
		return -ENOEXEC;
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	error = errno;
	close(fd);
	if (p == MAP_FAILED)
		return -error;
	*f = (struct elf_file){ .bytes = p, .size = (size_t)st.st_size, .header = p };
	if (!header_is_sane(f)) {
		elf_close(f);
		return -ENOEXEC;
	}
	f->segments = (const void *)(f->bytes + f->header->e_phoff);
	return 0;
}

void elf_close(struct elf_file *f)
{
	if (f->bytes)
		munmap((void *)f->bytes, f->size);
	f->bytes = NULL;
}

static const uint8_t *file_part(const struct elf_file *f, uint64_t offset, uint64_t size)
{
	return offset <= f->size && size <= f->size - offset ? f->bytes + offset : NULL;
}

static const Elf64_Phdr *segment(const struct elf_file *f, uint32_t type)
{
	for (int i = 0; i < f->header->e_phnum; i++)
		if (f->segments[i].p_type == type)
			return &f->segments[i];
	return NULL;
}

enum elf_kind elf_kind_of(const struct elf_file *f, const char **interpreter)
{
	const Elf64_Phdr *p = segment(f, PT_INTERP);
	const char *text;

	*interpreter = NULL;
	if (f->header->e_type != ET_EXEC && f->header->e_type != ET_DYN)
		return ELF_OTHER;
	if (!p)
		return ELF_STATIC;
	text = (const char *)file_part(f, p->p_offset, p->p_filesz);
	if (!text || !p->p_filesz || text[p->p_filesz - 1])
		return ELF_OTHER;
	*interpreter = text;
	return ELF_DYNAMIC;
}

const uint8_t *elf_at(const struct elf_file *f, uint64_t address, size_t size)
{
	for (int i = 0; i < f->header->e_phnum; i++) {
		const Elf64_Phdr *p = &f->segments[i];

		if (p->p_type == PT_LOAD && address >= p->p_vaddr &&
			address - p->p_vaddr <= p->p_filesz &&
			size <= p->p_filesz - (address - p->p_vaddr))
			return file_part(f, p->p_offset + (address - p->p_vaddr), size);
	}
	return NULL;
}

const Elf64_Phdr *elf_text(const struct elf_file *f)
{
	for (int i = 0; i < f->header->e_phnum; i++)
		if (f->segments[i].p_type == PT_LOAD && (f->segments[i].p_flags & PF_X))
			return &f->segments[i];
	return NULL;
}

size_t elf_build_id(const struct elf_file *f, const uint8_t **id)
{
	for (int i = 0; i < f->header->e_phnum; i++) {
		const Elf64_Phdr *p = &f->segments[i];
		const uint8_t *at =
			p->p_type == PT_NOTE ? file_part(f, p->p_offset, p->p_filesz) : NULL;
		const uint8_t *end = at ? at + p->p_filesz : NULL;

		while (at && (size_t)(end - at) >= sizeof(Elf64_Nhdr)) {
			const Elf64_Nhdr *n = (const void *)at;
			size_t name = (n->n_namesz + 3) & ~(size_t)3,
			       desc = (n->n_descsz + 3) & ~(size_t)3;

			if ((size_t)(end - at) - sizeof(*n) < name + desc)
				break;
			if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 &&
				!memcmp(n + 1, "GNU", 4)) {
				*id = at + sizeof(*n) + name;
				return n->n_descsz;
			}
			at += sizeof(*n) + name + desc;
		}
	}
	return 0;
}

static int32_t s32(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/*
 * .eh_frame_hdr: four encoding bytes, the pointer to .eh_frame, the number of entries, then pairs
 * (function, FDE) relative to the header. An FDE: length, CIE pointer, begin (pcrel), size.
 */
long elf_functions(const struct elf_file *f, struct elf_range **out)
{
	const Elf64_Phdr *p = segment(f, PT_GNU_EH_FRAME);
	const uint8_t *h = p ? file_part(f, p->p_offset, p->p_filesz) : NULL;
	struct elf_range *ranges;
	size_t count, filled = 0;

	if (!h || p->p_filesz < 12 || h[0] != 1 || h[1] != EH_HDR_ENCODING ||
		h[2] != EH_COUNT_ENCODING || h[3] != EH_TABLE_ENCODING)
		return -ENOTSUP;
	count = (uint32_t)s32(h + 8);
	if (count > (p->p_filesz - 12) / 8)
		return -ENOTSUP;
	ranges = calloc(count + 1, sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		uint64_t begin = p->p_vaddr + (uint64_t)(int64_t)s32(h + 12 + i * 8);
		const uint8_t *fde =
			elf_at(f, p->p_vaddr + (uint64_t)(int64_t)s32(h + 16 + i * 8), 16);

		if (fde)
			ranges[filled++] =
				(struct elf_range){ begin, begin + (uint32_t)s32(fde + 12) };
	}
	*out = ranges;
	return (long)filled;
}

/* The versions of a table's symbols, one for each; NULL if they have none. */
static const Elf64_Half *versions_of(
	const struct elf_file *f, const Elf64_Shdr *sections, const Elf64_Shdr *table)
{
	size_t count = table->sh_size / sizeof(Elf64_Sym);

	for (int i = 0; i < f->header->e_shnum; i++)
		if (sections[i].sh_type == SHT_GNU_versym &&
			sections[i].sh_link == (size_t)(table - sections) &&
			sections[i].sh_size >= count * sizeof(Elf64_Half))
			return (const void *)file_part(
				f, sections[i].sh_offset, sections[i].sh_size);
	return NULL;
}

/*
 * The version that programs are linked against today, which may be a resolver (IFUNC), and no
 * function then; of one that is only kept for old programs, whatever there is.
 */
static bool table_find(const struct elf_file *f, const Elf64_Shdr *sections,
	const Elf64_Shdr *table, const char *name, uint64_t *address)
{
	const Elf64_Sym *sym = (const void *)file_part(f, table->sh_offset, table->sh_size);
	const Elf64_Half *versions = versions_of(f, sections, table);
	const Elf64_Shdr *strings = &sections[table->sh_link];
	bool found = false;
	const char *text;

	if (table->sh_link >= f->header->e_shnum || !sym)
		return false;
	text = (const char *)file_part(f, strings->sh_offset, strings->sh_size);
	for (size_t i = 0; text && i < table->sh_size / sizeof(*sym); i++) {
		int type = ELF64_ST_TYPE(sym[i].st_info);
		bool old = versions && versions[i] & VERSION_OLD;

		if ((type != STT_FUNC && type != STT_GNU_IFUNC) || sym[i].st_shndx == SHN_UNDEF ||
			sym[i].st_name >= strings->sh_size ||
			strncmp(text + sym[i].st_name, name, strings->sh_size - sym[i].st_name) ||
			(type == STT_GNU_IFUNC && old))
			continue;
		if (type == STT_GNU_IFUNC)
			return false;
		if (!old || !found)
			*address = sym[i].st_value;
		found = true;
		if (!old)
			return true;
	}
	return found;
}

/* The section headers, or NULL. */
static const Elf64_Shdr *section_headers(const struct elf_file *f)
{
	const Elf64_Ehdr *h = f->header;

	if (!h->e_shoff || h->e_shentsize != sizeof(Elf64_Shdr))
		return NULL;
	return (const void *)file_part(f, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr));
}

bool elf_symbol(const struct elf_file *f, const char *name, uint64_t *address)
{
	static const uint32_t order[] = { SHT_SYMTAB, SHT_DYNSYM };
	const Elf64_Shdr *sections = section_headers(f);

	for (size_t k = 0; sections && k < 2; k++)
		for (int i = 0; i < f->header->e_shnum; i++)
			if (sections[i].sh_type == order[k] &&
				table_find(f, sections, &sections[i], name, address))
				return true;
	return false;
}

static bool table_holds(
	const struct elf_file *f, const Elf64_Shdr *table, uint64_t begin, uint64_t end)
{
	const Elf64_Sym *sym = (const void *)file_part(f, table->sh_offset, table->sh_size);

	for (size_t i = 0; sym && i < table->sh_size / sizeof(*sym); i++) {
		int type = ELF64_ST_TYPE(sym[i].st_info);

		if ((type == STT_FUNC || type == STT_NOTYPE || type == STT_GNU_IFUNC) &&
			sym[i].st_shndx != SHN_UNDEF && sym[i].st_shndx < SHN_LORESERVE &&
			sym[i].st_value >= begin && sym[i].st_value < end)
			return true;
	}
	return false;
}

bool elf_symbol_within(const struct elf_file *f, uint64_t begin, uint64_t end)
{
	const Elf64_Shdr *sections = section_headers(f);

	for (int i = 0; sections && i < f->header->e_shnum; i++)
		if ((sections[i].sh_type == SHT_SYMTAB || sections[i].sh_type == SHT_DYNSYM) &&
			table_holds(f, &sections[i], begin, end))
			return true;
	return false;
}
