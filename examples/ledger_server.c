/* SPDX-License-Identifier: MIT */
/*
 * A ledger whose state is as easy to break as possible: a hash table that grows, accounts with
 * growing histories, all on the heap, and a running checksum of everything in .data. A byte that a
 * restore loses or brings back wrongly makes the next `audit` say so.
 *
 *	open NAME              ->  ok                        a new account
 *	move FROM TO CENTS     ->  ok SEQUENCE               both histories grow by one entry
 *	balance NAME           ->  ok CENTS ENTRIES
 *	close NAME             ->  ok                        frees it; its balance goes to nobody
 *	audit                  ->  ok ACCOUNTS SEQUENCE      walks everything, or: corrupt WHERE
 *	torn FROM TO CENTS BUG ->  half a move (money has left, not arrived), then the bug
 *	crash BUG
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line_server.h"
#include "planted_bug.h"

#define NAME_BYTES 32

struct entry {
	uint64_t sequence;
	int64_t cents;
};

struct account {
	struct account *next; /* in its bucket */
	char name[NAME_BYTES];
	int64_t cents; /* == sum of the entries */
	struct entry *entries;
	size_t entry_count, entry_size;
};

/* Invariants: checksum == sum of mix(entry) over all entries; total == sum of cents == -closed. */
static struct account **buckets;
static size_t bucket_count;
static size_t account_count;
static uint64_t sequence = 1;
static uint64_t checksum = 0;
static int64_t closed_cents = 0;

static uint64_t mix(const struct entry *e)
{
	uint64_t x = e->sequence * 0x9e3779b97f4a7c15 + (uint64_t)e->cents;

	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9;
}

static size_t bucket_of(const char *name, size_t count)
{
	uint64_t h = 14695981039346656037u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 1099511628211u;
	return h % count;
}

static void *must(void *p)
{
	if (!p) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return p;
}

static struct account **find(const char *name)
{
	struct account **at;

	if (!bucket_count)
		return NULL;
	for (at = &buckets[bucket_of(name, bucket_count)]; *at; at = &(*at)->next)
		if (strcmp((*at)->name, name) == 0)
			return at;
	return NULL;
}

/* Twice the buckets when there are as many accounts as buckets. */
static void grow(void)
{
	size_t count = bucket_count ? bucket_count * 2 : 4;
	struct account **bigger = must(calloc(count, sizeof(*bigger)));

	for (size_t i = 0; i < bucket_count; i++) {
		for (struct account *a = buckets[i], *next; a; a = next) {
			struct account **to = &bigger[bucket_of(a->name, count)];

			next = a->next;
			a->next = *to;
			*to = a;
		}
	}
	free(buckets);
	buckets = bigger;
	bucket_count = count;
}

static void account_open(const char *name)
{
	struct account *a = must(calloc(1, sizeof(*a)));
	size_t bucket;

	if (account_count >= bucket_count)
		grow();
	snprintf(a->name, sizeof(a->name), "%s", name);
	bucket = bucket_of(a->name, bucket_count);
	a->next = buckets[bucket];
	buckets[bucket] = a;
	account_count++;
}

static void account_append(struct account *a, int64_t cents)
{
	if (a->entry_count == a->entry_size) {
		a->entry_size = a->entry_size ? a->entry_size * 2 : 2;
		a->entries = must(realloc(a->entries, a->entry_size * sizeof(*a->entries)));
	}
	a->entries[a->entry_count] = (struct entry){ sequence, cents };
	checksum += mix(&a->entries[a->entry_count]);
	a->entry_count++;
	a->cents += cents;
}

static void account_close(struct account **at)
{
	struct account *a = *at;

	*at = a->next;
	for (size_t i = 0; i < a->entry_count; i++)
		checksum -= mix(&a->entries[i]);
	closed_cents += a->cents;
	account_count--;
	free(a->entries);
	free(a);
}

/* NULL if all is well, else what is not. */
static const char *audit(void)
{
	uint64_t sum = 0;
	int64_t total = closed_cents;
	size_t count = 0;

	for (size_t i = 0; i < bucket_count; i++) {
		for (struct account *a = buckets[i]; a; a = a->next, count++) {
			int64_t cents = 0;

			for (size_t e = 0; e < a->entry_count; e++) {
				cents += a->entries[e].cents;
				sum += mix(&a->entries[e]);
				if (e > 0 && a->entries[e].sequence <= a->entries[e - 1].sequence)
					return "order";
			}
			if (cents != a->cents)
				return a->name;
			total += cents;
		}
	}
	if (count != account_count)
		return "accounts";
	return sum != checksum ? "checksum" : total != 0 ? "total" : NULL;
}

static bool answer(struct client *client, const char *text)
{
	client_printf(client, "%s\n", text);
	return true;
}

static bool on_move(
	struct client *client, const char *from, const char *to, long long cents, const char *bug)
{
	struct account **source = find(from), **target = find(to);

	if (!source || !target || source == target)
		return answer(client, "no such account");
	account_append(*source, -cents);
	if (bug && !planted_bug_trigger(bug)) {
		account_append(*target, cents); /* no such bug: do not leave it torn */
		sequence++;
		return answer(client, "no such bug");
	}
	account_append(*target, cents);
	client_printf(client, "ok %llu\n", (unsigned long long)sequence++);
	return true;
}

static bool on_line(struct client *client, char *line, size_t len)
{
	char one[NAME_BYTES], two[NAME_BYTES], bug[NAME_BYTES];
	struct account **at;
	const char *wrong;
	long long cents;

	if (strcmp(line, "audit") == 0) {
		wrong = audit();
		if (wrong)
			client_printf(client, "corrupt %s\n", wrong);
		else
			client_printf(client, "ok %zu %llu\n", account_count,
				(unsigned long long)sequence);
		return true;
	}
	if (sscanf(line, "move %31s %31s %lld", one, two, &cents) == 3)
		return on_move(client, one, two, cents, NULL);
	if (sscanf(line, "torn %31s %31s %lld %31s", one, two, &cents, bug) == 4)
		return on_move(client, one, two, cents, bug);
	if (sscanf(line, "crash %31s", bug) == 1)
		return answer(client, planted_bug_trigger(bug) ? "survived" : "no such bug");
	if (sscanf(line, "open %31s", one) == 1) {
		if (find(one))
			return answer(client, "there is one");
		account_open(one);
		return answer(client, "ok");
	}
	if (sscanf(line, "balance %31s", one) == 1 && (at = find(one))) {
		client_printf(client, "ok %lld %zu\n", (long long)(*at)->cents, (*at)->entry_count);
		return true;
	}
	if (sscanf(line, "close %31s", one) == 1 && (at = find(one))) {
		account_close(at);
		return answer(client, "ok");
	}
	return answer(client, "what?");
}

int main(int argc, char **argv)
{
	return line_server_main(argc, argv, on_line);
}
