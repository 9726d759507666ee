/* SPDX-License-Identifier: MIT */
/*
 * Atomic words of 8 bytes. For 32-bit code the compiler calls these names, which libatomic has as
 * well; the core is linked with no library.
 */
#include <stdbool.h>
#include <stdint.h>

#define HIDDEN(name) __asm__(name) __attribute__((visibility("hidden"), weak))

uint64_t crn_load_8(const volatile uint64_t *at, int order) HIDDEN("__atomic_load_8");
void crn_store_8(volatile uint64_t *at, uint64_t value, int order) HIDDEN("__atomic_store_8");
uint64_t crn_exchange_8(volatile uint64_t *at, uint64_t value, int order)
	HIDDEN("__atomic_exchange_8");
bool crn_compare_exchange_8(volatile uint64_t *at, uint64_t *expected, uint64_t value, int good,
	int bad) HIDDEN("__atomic_compare_exchange_8");
uint64_t crn_fetch_add_8(volatile uint64_t *at, uint64_t value, int order)
	HIDDEN("__atomic_fetch_add_8");
uint64_t crn_fetch_sub_8(volatile uint64_t *at, uint64_t value, int order)
	HIDDEN("__atomic_fetch_sub_8");

/* *at becomes `value` if it is `was`; what it was. */
static uint64_t swap_if(volatile uint64_t *at, uint64_t was, uint64_t value)
{
	__asm__ volatile("lock cmpxchg8b %0"
			 : "+m"(*at), "+A"(was)
			 : "b"((uint32_t)value), "c"((uint32_t)(value >> 32))
			 : "memory", "cc");
	return was;
}

uint64_t crn_load_8(const volatile uint64_t *at, int order)
{
	return swap_if((volatile uint64_t *)at, 0, 0);
}

uint64_t crn_exchange_8(volatile uint64_t *at, uint64_t value, int order)
{
	uint64_t was = 0, seen;

	while ((seen = swap_if(at, was, value)) != was)
		was = seen;
	return was;
}

void crn_store_8(volatile uint64_t *at, uint64_t value, int order)
{
	(void)crn_exchange_8(at, value, order);
}

bool crn_compare_exchange_8(volatile uint64_t *at, uint64_t *expected, uint64_t value, int good,
	int bad)
{
	uint64_t seen = swap_if(at, *expected, value);
	bool done = seen == *expected;

	*expected = seen;
	return done;
}

uint64_t crn_fetch_add_8(volatile uint64_t *at, uint64_t value, int order)
{
	uint64_t was = 0, seen;

	while ((seen = swap_if(at, was, was + value)) != was)
		was = seen;
	return was;
}

uint64_t crn_fetch_sub_8(volatile uint64_t *at, uint64_t value, int order)
{
	return crn_fetch_add_8(at, 0 - value, order);
}
