/* SPDX-License-Identifier: MIT */
/* What writes cost on this host, in cycles of the time stamp counter: strategies weigh by it. */
#ifndef CRN_PRICES_H
#define CRN_PRICES_H

#include "session/session.h"

/*
 * Fills c->port.costs and c->signal_cost with what a machine like this one takes, by the time of a
 * system call. Before the tracker opens.
 */
void crn_prices_guess(cairn_t *c);
/*
 * Has the tracker serve first stores to pages of its own and protect them again, a fraction of a
 * millisecond, and corrects the guess by what that takes. After the tracker has opened, while it
 * has no areas and no interval. Where that cannot be tried, the guess stays.
 */
void crn_prices_try(cairn_t *c);
/* What the tracker has measured since (c->predictor) becomes part of the mean. */
void crn_prices_follow(cairn_t *c);

#endif
