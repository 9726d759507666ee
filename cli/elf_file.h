/* SPDX-License-Identifier: MIT */
/* An ELF file of this machine (64-bit x86), mapped and read: just what planning patches needs. */
#ifndef CRN_ELF_FILE_H
#define CRN_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct elf_file {
	const uint8_t *bytes;
	size_t size;
	const Elf64_Ehdr *header;
	const Elf64_Phdr *segments;
};

/* Code of one function, as the unwind tables know it: addresses as in the file's symbols. */
struct elf_range {
	uint64_t begin, end;
};

enum elf_kind {
	ELF_NOT,    /* no ELF file */
	ELF_OTHER,  /* ELF, but 32-bit, another machine, or no program */
	ELF_STATIC, /* no program interpreter */
	ELF_DYNAMIC,
};

/* What such a file is called: the last component of its path. */
static inline const char *elf_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* 0 or -errno. A file that is no valid 64-bit x86 ELF gives -ENOEXEC. */
int elf_open(struct elf_file *f, const char *path);
void elf_close(struct elf_file *f);

/* What kind of program is in the file; *interpreter points into it or is NULL. */
enum elf_kind elf_kind_of(const struct elf_file *f, const char **interpreter);

/*
 * The bytes that are at [address, address + size) once loaded, or NULL if the file does not hold
 * all of them.
 */
const uint8_t *elf_at(const struct elf_file *f, uint64_t address, size_t size);

/* The first executable segment, or NULL. */
const Elf64_Phdr *elf_text(const struct elf_file *f);

/* The build id's bytes; their number, 0 if there is none. */
size_t elf_build_id(const struct elf_file *f, const uint8_t **id);

/* All functions by .eh_frame, in rising order; the caller frees *out. Their number, or -errno. */
long elf_functions(const struct elf_file *f, struct elf_range **out);

/* The address of a function symbol (.symtab, then .dynsym). False if there is none of that name. */
bool elf_symbol(const struct elf_file *f, const char *name, uint64_t *address);

/* Does a symbol of code, of whatever kind, lie in [begin, end)? */
bool elf_symbol_within(const struct elf_file *f, uint64_t begin, uint64_t end);

#endif
