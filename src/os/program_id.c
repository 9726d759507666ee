/* SPDX-License-Identifier: MIT */
#include "os/program_id.h"

#include <fcntl.h>
#include <linux/elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/shared_file.h"
#include "os/sys.h"

#define NOTE_BUILD_ID 3 /* of owner GNU */
#define SEGMENTS_MAX  64

static bool read_at(int fd, void *to, size_t len, uint64_t offset)
{
	return crn_sys4(SYS_pread64, fd, to, len, offset) == (long)len;
}

/* The bytes of the build-id among the notes, or NULL. */
static const uint8_t *find_note(
	const uint8_t *at, size_t size, uint64_t align, uint32_t *len)
{
	const uint8_t *end = at + size;

	align = align == 8 ? 8 : 4;
	while ((size_t)(end - at) >= sizeof(struct elf64_note)) {
		struct elf64_note n;
		uint64_t name, whole;

		crn_copy(&n, at, sizeof(n));
		name = sizeof(n) + (n.n_namesz + 3ull) / 4 * 4;
		name = (name + align - 1) / align * align;
		whole = name + (n.n_descsz + align - 1) / align * align;
		if (name + n.n_descsz > (size_t)(end - at))
			return NULL;
		if (n.n_type == NOTE_BUILD_ID && n.n_namesz == 4 &&
			crn_streq((const char *)at + sizeof(n), "GNU")) {
			*len = n.n_descsz;
			return at + name;
		}
		if (whole > (size_t)(end - at))
			return NULL;
		at += whole;
	}
	return NULL;
}

static size_t put_hex(char *out, size_t size, const uint8_t *bytes, size_t len)
{
	size_t used = 0;

	for (size_t i = 0; i < len && used + 3 <= size; i++)
		used += crn_format(out + used, size - used, "%02x", bytes[i]);
	return used;
}

/* ", build-id HEX"; false: it has none that can be read. */
static bool put_build_id(int fd, char *out, size_t size)
{
	uint8_t notes[1024];
	struct elf64_hdr h;
	struct elf64_phdr s;

	if (!read_at(fd, &h, sizeof(h), 0) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
		h.e_phentsize != sizeof(s))
		return false;
	for (unsigned i = 0; i < h.e_phnum && i < SEGMENTS_MAX; i++) {
		const uint8_t *id;
		uint32_t len;
		size_t used;

		if (!read_at(fd, &s, sizeof(s), h.e_phoff + i * sizeof(s)))
			return false;
		if (s.p_type != PT_NOTE || s.p_filesz > sizeof(notes) ||
			!read_at(fd, notes, s.p_filesz, s.p_offset))
			continue;
		id = find_note(notes, s.p_filesz, s.p_align, &len);
		if (!id || !len)
			continue;
		used = crn_format(out, size, ", build-id ");
		if (used < size)
			(void)put_hex(out + used, size - used, id, len);
		return true;
	}
	return false;
}

void crn_program_id(char *out, size_t size)
{
	char path[CRN_PATH_MAX];
	const char *name = path;
	struct stat st = { .st_size = 0 };
	size_t used;
	long fd;

	if (crn_path_executed(path, sizeof(path)) < 0) {
		(void)crn_format(out, size, "unknown");
		return;
	}
	for (const char *at = path; *at; at++)
		name = *at == '/' ? at + 1 : name;
	used = crn_format(out, size, "%s", name);
	if (used >= size)
		return;
	fd = crn_path_open_own("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !put_build_id((int)fd, out + used, size - used)) {
		(void)crn_sys2(SYS_stat, "/proc/self/exe", &st);
		(void)crn_format(out + used, size - used, ", %lu bytes",
			(unsigned long)st.st_size);
	}
	if (fd >= 0)
		crn_fd_close((int)fd);
}
