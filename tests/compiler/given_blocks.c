/* SPDX-License-Identifier: MIT */
/*
 * What libc allocates for the program is of the program's heap: stores to it come back, and blocks
 * that an undone interval has allocated or freed do not matter to libc. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <execinfo.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <wordexp.h>
#include "../lib/harness.h"

#define TURNS 40

bool crn_heap_holds(const void *block); /* the run-time's */

static volatile int *turns; /* shared: not turned back */
static struct addrinfo *addresses;
static struct dirent **files;
static int count;
static char *paths[4];
static glob_t names;
static wordexp_t words;
static struct ifaddrs *interfaces;
static char **frames;
static char *text;
static size_t text_size;

static unsigned short *port_of(struct addrinfo *a)
{
	return &((struct sockaddr_in *)(void *)a->ai_addr)->sin_port;
}

static void get_names(void)
{
	names = (glob_t){ .gl_offs = 2 };
	CHECK(!glob("folder/[bc]", GLOB_DOOFFS, NULL, &names));
	CHECK(glob("nowhere/?", GLOB_DOOFFS | GLOB_APPEND, NULL, &names) == GLOB_NOMATCH);
	CHECK(!glob("folder/a", GLOB_DOOFFS | GLOB_APPEND, NULL, &names));
	CHECK(names.gl_pathc == 3 && !names.gl_pathv[0] && !names.gl_pathv[1]);
	CHECK(!names.gl_pathv[5]);
	CHECK(!strcmp(names.gl_pathv[2], "folder/b") && !strcmp(names.gl_pathv[4], "folder/a"));
	words = (wordexp_t){ 0 };
	CHECK(!wordexp("one two", &words, WRDE_NOCMD));
	CHECK(wordexp("$(true)", &words, WRDE_NOCMD | WRDE_APPEND) == WRDE_CMDSUB);
	CHECK(!wordexp("th'r'ee", &words, WRDE_NOCMD | WRDE_APPEND));
	CHECK(words.we_wordc == 3 && !strcmp(words.we_wordv[2], "three") && !words.we_wordv[3]);
	CHECK(!wordexp("four", &words, WRDE_NOCMD | WRDE_REUSE) && words.we_wordc == 1);
	CHECK(crn_heap_holds(names.gl_pathv) && crn_heap_holds(names.gl_pathv[4]));
	CHECK(crn_heap_holds(words.we_wordv) && crn_heap_holds(words.we_wordv[0]));
}

static void get_interfaces(void)
{
	bool found = false;

	CHECK(!getifaddrs(&interfaces) && crn_heap_holds(interfaces));
	for (struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
		CHECK(crn_heap_holds(i) && crn_heap_holds(i->ifa_name) &&
			(!i->ifa_addr || crn_heap_holds(i->ifa_addr)));
		found |= !strcmp(i->ifa_name, "lo");
	}
	CHECK(found);
}

static void get_frames(void)
{
	void *at[1] = { (void *)get_interfaces };

	frames = backtrace_symbols(at, 1);
	CHECK(crn_heap_holds(frames) && crn_heap_holds(frames[0]) && strchr(frames[0], '['));
}

static void get_text(void)
{
	FILE *f = open_memstream(&text, &text_size);

	CHECK(f && fprintf(f, "%s", "begin") == 5 && !fflush(f) && !strcmp(text, "begin"));
	for (int i = 0; i < 3000; i++)
		CHECK(fprintf(f, "%d ", i) > 0);
	CHECK(!fseek(f, 2, SEEK_SET) && fputc('G', f) == 'G' && !fflush(f) && text_size == 3);
	CHECK(!fseek(f, 4, SEEK_END) && fputc('!', f) == '!' && !fclose(f));
	CHECK(text_size == 5 + 10 * 2 + 90 * 3 + 900 * 4 + 2000 * 5 + 5 && crn_heap_holds(text));
	CHECK(!memcmp(text, "beGin0 1 2 ", 11) && !memcmp(text + text_size - 5, "\0\0\0\0!", 6));
}

static void get_all(void)
{
	struct addrinfo numeric = { .ai_flags = AI_NUMERICHOST | AI_CANONNAME };

	CHECK(!getaddrinfo("127.0.0.1", NULL, &numeric, &addresses));
	count = scandir("folder", &files, NULL, alphasort);
	get_names();
	get_interfaces();
	get_frames();
	get_text();
	paths[0] = realpath("folder", NULL);
	paths[1] = getcwd(NULL, 0);
	paths[2] = get_current_dir_name();
	paths[3] = canonicalize_file_name("folder/b");
	CHECK(count == 5 && !strcmp(files[2]->d_name, "a") && !strcmp(paths[1], paths[2]));
	CHECK(crn_heap_holds(files) && crn_heap_holds(addresses->ai_canonname));
	for (int i = 0; i < count; i++)
		CHECK(crn_heap_holds(files[i]));
	for (int i = 0; i < 4; i++)
		CHECK(crn_heap_holds(paths[i]));
	for (struct addrinfo *a = addresses; a; a = a->ai_next)
		CHECK(crn_heap_holds(a) && a->ai_family == AF_INET && *port_of(a) == 0 &&
			((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr.s_addr ==
				htonl(INADDR_LOOPBACK));
}

static void store_all(void)
{
	for (struct addrinfo *a = addresses; a; a = a->ai_next)
		*port_of(a) = htons(80);
	addresses->ai_canonname[0]++;
	names.gl_pathv[4][0]++;
	words.we_wordv[0][0]++;
	interfaces->ifa_name[0]++;
	frames[0][0]++;
	text[0]++;
	files[2]->d_name[0]++;
	for (int i = 0; i < 4; i++)
		*strrchr(paths[i], '/') = 0;
}

static void free_all(void)
{
	freeaddrinfo(addresses);
	for (int i = 0; i < count; i++)
		free(files[i]);
	free(files);
	globfree(&names);
	wordfree(&words);
	freeifaddrs(interfaces);
	free(frames);
	free(text);
	for (int i = 0; i < 4; i++)
		free(paths[i]);
}

/* libc's own heap at work. */
static void use_libc(void)
{
	for (int i = 0; i < 8; i++) {
		FILE *f = fopen("folder/b", "r");

		CHECK(f && fgetc(f) == EOF && !fclose(f));
	}
}

int main(int argc, char **argv)
{
	cairn_t *c;
	uint64_t id;

	CHECK(argc == 2 && !mkdir("folder", 0700));
	for (const char *name = "abc"; *name; name++) {
		char path[] = "folder/?";

		path[7] = *name;
		CHECK(mknod(path, S_IFREG | 0600, 0) == 0);
	}
	turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	c = test_open_built(argv[1]);
	get_all();
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		++*turns;
	CHECK(*port_of(addresses) == 0 && !strcmp(addresses->ai_canonname, "127.0.0.1") &&
		!strcmp(files[2]->d_name, "a") && strrchr(paths[3], '/')[1] == 'b');
	CHECK(!strcmp(names.gl_pathv[4], "folder/a") && !strcmp(words.we_wordv[0], "four") &&
		!strncmp(text, "beGin", 5));
	store_all();
	free_all();
	use_libc();
	get_all();
	store_all();
	if (*turns < TURNS)
		CHECK(cairn_restore(c, id) < 0);
	free_all();
	use_libc();
	CHECK_OK(cairn_close(c));
	return 0;
}
