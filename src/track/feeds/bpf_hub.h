/* SPDX-License-Identifier: MIT */
/*
 * The hub is one set of BPF programs that serves many sessions. Each fault of the host is looked at
 * once, however many sessions there are.
 *
 *	session --> links: the programs stay attached while any process has one
 *	        --> its own array (crn_bpf_shared), which it alone has mapped
 *	table:  address space  --> array of its session; the programs look here
 *	        CRN_HUB_RECORD --> the record: numbers of the links, a lock
 *
 * Nobody owns a hub. The first session makes it, later ones find the table by its name, and the
 * last link ends it. Joining needs CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN.
 *
 * A member closes the table when it has joined. It keeps links, which it can neither detach nor
 * change, and the mapping of its own array. So a member that has dropped its rights cannot read or
 * write another member's array, and cannot change the table. Nor can it fill another one's ring: a
 * fault is noted in the array of the address space that it belongs to.
 *
 * An entry is dead when its address space has gone, or its session has been closed. Both are noted
 * in its array (`over`), the first by the programs. Now and then a session that joins removes the
 * dead entries, many at a time, because the kernel waits as long for one. If it has given a session
 * the address of a dead address space, that entry is replaced.
 *
 * The record has a lock for changes of the table. Its holder may have been killed, or the maker of
 * the hub been stopped: who sees nothing happen for too long retires the hub. A retired hub serves
 * its members and takes no new ones.
 */
#ifndef CRN_BPF_HUB_H
#define CRN_BPF_HUB_H

#include "track/feeds/bpf_programs.h"

#define CRN_HUB_RECORD  1ull /* the address of no address space */
#define CRN_HUB_MEMBERS 1024u
#define CRN_HUB_DEAD	16u /* sessions that join between two that look for dead entries */
/*
 * Change it with the layout of the record, or with what a holder of the lock may do: versions that
 * disagree must not find each other's hubs.
 */
#define CRN_HUB_VERSION 1u

/*
 * Join: the programs write to `array` (a descriptor) what they see of address space `mm`. 0;
 * -EPERM: rights are missing; -ENOSPC: the hub is full; -EEXIST: another engine of this process is
 * a member; or another -errno. Takes tens of milliseconds.
 */
int crn_bpf_hub_join(uint64_t mm, int array, int links[CRN_LINKS]);

#endif
