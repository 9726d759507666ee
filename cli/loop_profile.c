/* SPDX-License-Identifier: MIT */
#include "loop_profile.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1ull << 36)

void *loop_profile_alloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size);

	if (!p) {
		fprintf(stderr, "cairn profile: out of memory\n");
		exit(1);
	}
	return p;
}

static int refuse(const struct loop_profile *p, const char *what)
{
	fprintf(stderr, "cairn profile: %s: %s\n", p->path, what);
	return 1;
}

/* Sparse files are read sparsely: only what is used. */
static void *read_part(int fd, uint64_t at, uint64_t len)
{
	char *part = loop_profile_alloc(len + 1, 1);
	uint64_t used = 0;

	while (used < len) {
		ssize_t got = pread(fd, part + used, len - used, (off_t)(at + used));

		if (got <= 0)
			break;
		used += (uint64_t)got;
	}
	return part;
}

/* The next word of a line; "" beyond its end. Cuts the line. */
static char *word(char **line)
{
	char *w = strsep(line, "\t");

	return w ? w : (char *)"";
}

static bool number(char **line, unsigned *out)
{
	char *end, *w = word(line);

	*out = (unsigned)strtoul(w, &end, 10);
	return *w && !*end;
}

static bool read_point(struct loop_point *point, char *line)
{
	char *rest = strdup(line), *kind;

	if (!rest)
		return false;
	point->text = line;
	kind = word(&rest);
	point->file = word(&rest);
	point->function = word(&rest);
	point->forks = !strcmp(kind, "fork");
	if (point->forks)
		return number(&rest, &point->line) && !rest;
	(void)word(&rest); /* static or global */
	return !strcmp(kind, "loop") && number(&rest, &point->line) &&
		number(&rest, &point->column) && number(&rest, &point->index) &&
		number(&rest, &point->count) && number(&rest, &point->depth) && *word(&rest) &&
		!rest && point->index < point->count;
}

static const struct loop_point *sorted_points;

static int by_text(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int order = strcmp(sorted_points[x].text, sorted_points[y].text);

	return order ? order : x < y ? -1 : 1;
}

static void find_same(struct loop_profile *p)
{
	uint32_t n = p->head.point_count, *order = loop_profile_alloc(n, sizeof(*order));

	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	sorted_points = p->points;
	qsort(order, n, sizeof(*order), by_text);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t before = i ? order[i - 1] : order[i];
		bool again = i && !strcmp(p->points[before].text, p->points[order[i]].text);

		p->points[order[i]].same = again ? p->points[before].same : order[i];
	}
	free(order);
}

static int read_points(struct loop_profile *p, char *text)
{
	const struct crn_loop_head *h = &p->head;
	char *line = text, *end;

	if (crn_loop_sum(CRN_LOOP_SUM_START, text, h->text_len) != h->text_sum)
		return refuse(p, "damaged: the list of its loops is not as it was written");
	p->points = loop_profile_alloc(h->point_count, sizeof(*p->points));
	for (uint32_t i = 0; i < h->point_count; i++, line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			return refuse(p, "damaged: the list of its loops is too short");
		*end = '\0';
		if (!read_point(&p->points[i], line))
			return refuse(p, "damaged: a loop without a name");
	}
	if (*line)
		return refuse(p, "damaged: the list of its loops is too long");
	find_same(p);
	return 0;
}

/* A process that another one of these has become by an exec has that one's place in the chain. */
static int32_t same_pid_before(const struct loop_profile *p, uint32_t pid)
{
	for (uint32_t i = p->process_count; i > 0; i--)
		if (p->processes[i - 1].section->pid == pid)
			return (int32_t)i - 1;
	return -1;
}

static int read_process(struct loop_profile *p, const struct crn_loop_section *s,
	const int32_t *number_of)
{
	const struct crn_loop_counts *counts = (const struct crn_loop_counts *)(s + 1);
	struct loop_process *process = &p->processes[p->process_count];

	if (s->parent > p->head.taken || s->born_at > p->head.point_count ||
		s->last_ns < s->began_ns)
		return refuse(p, "damaged: a process that cannot be");
	for (uint32_t i = 0; i < p->head.point_count; i++)
		if (counts[i].outer > p->head.point_count ||
			counts[i].waiting > counts[i].waits)
			return refuse(p, "damaged: counts that cannot be");
	process->section = s;
	process->counts = counts;
	process->parent = s->parent ? number_of[s->parent - 1] : same_pid_before(p, s->pid);
	p->process_count++;
	return 0;
}

static int read_processes(struct loop_profile *p, int fd)
{
	const struct crn_loop_head *h = &p->head;
	uint32_t count = h->taken < h->rooms ? h->taken : h->rooms;
	int32_t *number_of = loop_profile_alloc(count, sizeof(*number_of));

	p->processes = loop_profile_alloc(count, sizeof(*p->processes));
	for (uint32_t i = 0; i < count; i++) {
		const struct crn_loop_section *s =
			read_part(fd, h->section_at + i * h->section_size, h->section_size);

		number_of[i] = -1;
		/* One that was killed while it was born has counted nothing. */
		if (!s->ready)
			continue;
		if (s->parent > i)
			return refuse(p, "damaged: a process that is older than its parent");
		if (read_process(p, s, number_of))
			return 1;
		number_of[i] = (int32_t)p->process_count - 1;
	}
	if (!p->process_count)
		return refuse(p, "it has no process in it");
	return 0;
}

static int check_head(const struct loop_profile *p, uint64_t size)
{
	const struct crn_loop_head *h = &p->head;
	uint64_t needs = sizeof(struct crn_loop_section) +
		(uint64_t)h->point_count * sizeof(struct crn_loop_counts);

	if (size < sizeof(*h) || h->magic != CRN_LOOP_MAGIC)
		return refuse(p, "no profile of loops (programs built with cairn-cc "
				 "-fcairn-profile write them)");
	if (h->version != CRN_LOOP_VERSION)
		return refuse(p, "a profile of another version of Cairn: profile again");
	if (h->text_at != sizeof(*h) || h->text_len > FILE_MAX ||
		h->section_at < h->text_at + h->text_len || h->section_at > FILE_MAX ||
		h->section_size <= needs || h->section_size > FILE_MAX ||
		h->rooms > CRN_LOOP_MAX || memchr(h->program, 0, sizeof(h->program)) == NULL)
		return refuse(p, "damaged: its head cannot be");
	if (size < h->section_at + h->rooms * h->section_size)
		return refuse(p, "cut short: it ends in the middle of its processes");
	return 0;
}

int loop_profile_read(struct loop_profile *p, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;
	struct stat st;
	void *head;

	p->path = path;
	if (fd < 0 || fstat(fd, &st) < 0)
		return refuse(p, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(p, "no file");
	head = read_part(fd, 0, sizeof(p->head));
	memcpy(&p->head, head, sizeof(p->head));
	err = check_head(p, (uint64_t)st.st_size);
	if (!err)
		err = read_points(p, read_part(fd, p->head.text_at, p->head.text_len));
	if (!err)
		err = read_processes(p, fd);
	close(fd);
	return err;
}
