/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/mman.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/bpf.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/sys.h"

/* union bpf_attr, the parts used here; the kernel takes a longer one whose tail is zero. */
union bpf_arg {
	struct {
		uint32_t type, key_size, value_size, entries, flags, like, node;
		char name[CRN_BPF_NAME];
	} map;
	struct {
		uint32_t map;
		uint64_t key, value, flags;
	} element;
	struct {
		uint64_t from, to, keys, values;
		uint32_t count, map;
		uint64_t element_flags, flags;
	} batch;
	struct {
		uint32_t number, next;
	} object;
	struct {
		uint32_t fd, size;
		uint64_t to;
	} info;
	struct {
		uint32_t type, insn_count;
		uint64_t insns, license;
		uint32_t log_level, log_size;
		uint64_t log_buffer;
		uint32_t kernel_version, flags;
	} load;
	struct {
		uint64_t name;
		uint32_t program;
	} open;
	struct {
		uint32_t program;
	} test;
	uint8_t all[128];
};

enum {
	MAP_CREATE = 0,
	MAP_LOOKUP = 1,
	MAP_UPDATE = 2,
	MAP_DELETE = 3,
	MAP_NEXT_KEY = 4,
	PROG_LOAD = 5,
	PROG_TEST_RUN = 10,
	MAP_NEXT_NUMBER = 12,
	MAP_BY_NUMBER = 14,
	OBJECT_INFO = 15,
	RAW_TRACEPOINT_OPEN = 17,
	MAP_DELETE_BATCH = 27,
	LINK_BY_NUMBER = 30,
};

#define DROPS_MAX 4 /* one by one */

#define MAP_TYPE_ARRAY           2
#define MAP_TYPE_HASH_OF_MAPS    13
#define MAP_MMAPABLE             (1u << 10)
#define PROG_TYPE_RAW_TRACEPOINT 17

static int bpf(int command, union bpf_arg *arg)
{
	return (int)crn_sys3(SYS_bpf, command, arg, sizeof(*arg));
}

int crn_bpf_array(size_t size, void **memory)
{
	union bpf_arg arg = { .all = { 0 } };
	long at;
	int fd;

	arg.map.type = MAP_TYPE_ARRAY;
	arg.map.key_size = 4;
	arg.map.value_size = (uint32_t)size;
	arg.map.entries = 1;
	arg.map.flags = MAP_MMAPABLE;
	fd = crn_fd_raise(bpf(MAP_CREATE, &arg));
	if (fd < 0)
		return fd;
	at = crn_sys6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		fd, 0);
	if (at < 0 && at >= -4095) {
		crn_fd_close(fd);
		return (int)at;
	}
	(void)crn_memory_advise((void *)at, size, MADV_DONTFORK);
	(void)crn_memory_advise((void *)at, size, MADV_DONTDUMP);
	*memory = (void *)at;
	return fd;
}

int crn_bpf_load(const struct crn_bpf_insn *insns, size_t count)
{
	union bpf_arg arg = { .all = { 0 } };
	uint64_t mask;
	int fd;

	arg.load.type = PROG_TYPE_RAW_TRACEPOINT;
	arg.load.insn_count = (uint32_t)count;
	arg.load.insns = (uintptr_t)insns;
	/* The helpers for tracing are offered to programs that say they are under the GPL. */
	arg.load.license = (uintptr_t) "Dual MIT/GPL";
	/* The verifier gives up, with EAGAIN, while a signal waits for us. */
	mask = crn_signals_block();
	fd = bpf(PROG_LOAD, &arg);
	crn_signal_mask(SIG_SETMASK, mask);
	return fd;
}

static int attach(const char *tracepoint, int program)
{
	union bpf_arg arg = { .all = { 0 } };

	arg.open.name = (uintptr_t)tracepoint;
	arg.open.program = (uint32_t)program;
	return crn_fd_raise(bpf(RAW_TRACEPOINT_OPEN, &arg));
}

int crn_bpf_install(const char *tracepoint, const struct crn_bpf_insn *insns, size_t count)
{
	int program = crn_bpf_load(insns, count), link;

	if (program < 0)
		return program;
	link = attach(tracepoint, program);
	crn_fd_close(program);
	return link;
}

int crn_bpf_run(int program)
{
	union bpf_arg arg = { .all = { 0 } };

	arg.test.program = (uint32_t)program;
	return bpf(PROG_TEST_RUN, &arg);
}

/* ---- A table of arrays, and what others have made ---------------------------------------- */

int crn_bpf_table(const char *name, uint32_t entries, int like)
{
	union bpf_arg arg = { .all = { 0 } };

	arg.map.type = MAP_TYPE_HASH_OF_MAPS;
	arg.map.key_size = 8;
	arg.map.value_size = 4;
	arg.map.entries = entries;
	arg.map.like = (uint32_t)like;
	crn_copy(arg.map.name, name, CRN_MIN(crn_strlen(name), sizeof(arg.map.name) - 1));
	return bpf(MAP_CREATE, &arg);
}

static int element(int command, int table, uint64_t *key, void *value)
{
	union bpf_arg arg = { .all = { 0 } };

	arg.element.map = (uint32_t)table;
	arg.element.key = (uintptr_t)key;
	arg.element.value = (uintptr_t)value;
	return bpf(command, &arg);
}

int crn_bpf_table_put(int table, uint64_t key, int array)
{
	return element(MAP_UPDATE, table, &key, &array);
}

void crn_bpf_table_drop(int table, uint64_t *keys, uint32_t count)
{
	union bpf_arg arg = { .all = { 0 } };
	int err;

	if (!count)
		return;
	arg.batch.keys = (uintptr_t)keys;
	arg.batch.count = count;
	arg.batch.map = (uint32_t)table;
	err = bpf(MAP_DELETE_BATCH, &arg);
	/* Some kernels have it for simpler tables only. Each of these waits. */
	for (uint32_t i = 0; err < 0 && i < CRN_MIN(count, (uint32_t)DROPS_MAX); i++)
		(void)element(MAP_DELETE, table, &keys[i], NULL);
}

int crn_bpf_table_next(int table, uint64_t *key, bool first)
{
	return element(MAP_NEXT_KEY, table, first ? NULL : key, key);
}

int crn_bpf_table_get(int table, uint64_t key, uint32_t *number)
{
	return element(MAP_LOOKUP, table, &key, number);
}

static int by_number(int command, uint32_t number)
{
	union bpf_arg arg = { .all = { 0 } };

	arg.object.number = number;
	return bpf(command, &arg);
}

/* The first words of what the kernel tells of a map or a link; the second one is its number. */
struct object_info {
	uint32_t type, number, sizes[4];
	char name[CRN_BPF_NAME];
};

static int object_info(int fd, struct object_info *info)
{
	union bpf_arg arg = { .all = { 0 } };

	*info = (struct object_info){ 0 };
	arg.info.fd = (uint32_t)fd;
	arg.info.size = sizeof(*info);
	arg.info.to = (uintptr_t)info;
	return bpf(OBJECT_INFO, &arg);
}

static int object_number(int fd, uint32_t *number)
{
	struct object_info info;

	CRN_TRY(object_info(fd, &info));
	*number = info.number;
	return 0;
}

int crn_bpf_map_next(uint32_t *number)
{
	union bpf_arg arg = { .all = { 0 } };

	arg.object.number = *number;
	CRN_TRY(bpf(MAP_NEXT_NUMBER, &arg));
	*number = arg.object.next;
	return 0;
}

int crn_bpf_map_named(uint32_t number, const char *name)
{
	int fd = by_number(MAP_BY_NUMBER, number), err;
	struct object_info info;

	if (fd < 0)
		return fd;
	err = object_info(fd, &info);
	if (err >= 0 && (info.type != MAP_TYPE_HASH_OF_MAPS || !crn_streq(info.name, name)))
		err = -ENOENT;
	if (err >= 0)
		return fd;
	crn_fd_close(fd);
	return err;
}

int crn_bpf_map_number(int map, uint32_t *number)
{
	return object_number(map, number);
}

int crn_bpf_array_page(uint32_t number, void **page)
{
	int fd = by_number(MAP_BY_NUMBER, number);
	long at;

	if (fd < 0)
		return fd;
	at = crn_sys6(SYS_mmap, 0, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	crn_fd_close(fd);
	if (at < 0 && at >= -4095)
		return (int)at;
	(void)crn_memory_advise((void *)at, CRN_PAGE_SIZE, MADV_DONTFORK);
	*page = (void *)at;
	return 0;
}

int crn_bpf_link_number(int link, uint32_t *number)
{
	return object_number(link, number);
}

int crn_bpf_link_open(uint32_t number)
{
	return crn_fd_raise(by_number(LINK_BY_NUMBER, number));
}

/* ---- The kernel's types ------------------------------------------------------------------ */

struct btf_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t header_len, type_off, type_len, string_off, string_len;
};

struct btf_type {
	uint32_t name, info, size;
};

struct btf_member {
	uint32_t name, type, offset;
};

#define BTF_MAGIC       0xeb9f
#define BTF_KIND_STRUCT 4
#define BTF_MAX         (64ul << 20)

/* Bytes that follow a type of this kind, of which it has `count`; -1: unknown kind. */
static long btf_tail(unsigned kind, unsigned count)
{
	static const struct {
		int8_t fixed, each;
	} tail[] = { { 0, 0 }, { 4, 0 }, { 0, 0 }, { 12, 0 }, { 0, 12 }, { 0, 12 }, { 0, 8 },
		{ 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 8 }, { 4, 0 },
		{ 0, 12 }, { 0, 0 }, { 4, 0 }, { 0, 0 }, { 0, 12 } };

	if (kind >= CRN_ARRAY_SIZE(tail))
		return -1;
	return tail[kind].fixed + (long)tail[kind].each * count;
}

static int find_members(const struct btf_type *type, const char *strings,
	const char *const *members, uint32_t *offsets, size_t count)
{
	const struct btf_member *m = (const struct btf_member *)(type + 1);
	bool bitfields = type->info >> 31;
	size_t found = 0;

	for (unsigned i = 0; i < (type->info & 0xffff); i++) {
		for (size_t k = 0; k < count; k++) {
			uint32_t bits = bitfields ? m[i].offset & 0xffffff : m[i].offset;

			if (!crn_streq(strings + m[i].name, members[k]))
				continue;
			offsets[k] = bits / 8;
			found++;
		}
	}
	return found == count ? 0 : -ENOENT;
}

static int find_structure(const uint8_t *btf, size_t size, const char *structure,
	const char *const *members, uint32_t *offsets, size_t count)
{
	const struct btf_header *h = (const struct btf_header *)btf;
	const uint8_t *at, *end;
	const char *strings;

	if (size < sizeof(*h) || h->magic != BTF_MAGIC ||
		(uint64_t)h->header_len + h->type_off + h->type_len > size ||
		(uint64_t)h->header_len + h->string_off + h->string_len > size)
		return -ENOENT;
	at = btf + h->header_len + h->type_off;
	end = at + h->type_len;
	strings = (const char *)btf + h->header_len + h->string_off;
	while (at + sizeof(struct btf_type) <= end) {
		const struct btf_type *type = (const struct btf_type *)at;
		unsigned kind = type->info >> 24 & 31;
		long tail = btf_tail(kind, type->info & 0xffff);

		if (tail < 0)
			return -ENOENT;
		if (kind == BTF_KIND_STRUCT && type->name < h->string_len &&
			crn_streq(strings + type->name, structure)) {
			int err = find_members(type, strings, members, offsets, count);

			if (err >= 0 || structure[0])
				return err;
		}
		at += sizeof(*type) + (size_t)tail;
	}
	return -ENOENT;
}

/* Linux 6.16 lets the file be mapped; before that it is read, a page at a time. */
static int mapped_structure(int fd, const char *structure, const char *const *members,
	uint32_t *offsets, size_t count)
{
	long size = crn_sys3(SYS_lseek, fd, 0, SEEK_END), at;
	int err;

	if (size <= 0 || crn_sys3(SYS_lseek, fd, 0, SEEK_SET) < 0)
		return -ENODEV;
	at = crn_sys6(SYS_mmap, 0, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (at < 0 && at >= -4095)
		return -ENODEV;
	err = find_structure((void *)at, (size_t)size, structure, members, offsets, count);
	crn_memory_unmap((void *)at, (size_t)size);
	return err;
}

int crn_btf_offsets(
	const char *structure, const char *const *members, uint32_t *offsets, size_t count)
{
	int fd = (int)crn_sys4(
		SYS_openat, AT_FDCWD, "/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC, 0);
	size_t size = 0;
	void *memory;
	long got;
	int err;

	if (fd < 0)
		return fd;
	err = mapped_structure(fd, structure, members, offsets, count);
	if (err != -ENODEV)
		goto out;
	err = crn_memory_map(&memory, BTF_MAX); /* what is not read is not populated */
	if (err < 0)
		goto out;
	while ((got = crn_fd_read(fd, (uint8_t *)memory + size, BTF_MAX - size)) > 0)
		size += (size_t)got;
	err = got < 0 ? (int)got
		      : find_structure(memory, size, structure, members, offsets, count);
	crn_memory_unmap(memory, BTF_MAX);
out:
	crn_fd_close(fd);
	return err;
}
