/* SPDX-License-Identifier: MIT */
/*
 * Where shadow and tags lie in a 32-bit program (LMC, section III-A), for rt.h. Four GiB are the
 * program's where the kernel is a 64-bit one. The program's image is linked to the begin of the
 * first window (cairn-cc does that), the kernel maps libraries and the stack into the second.
 *
 *	tags      0x00010000  primary >> shift, one byte for each region; all below the image
 *	primary   0x10000000  256 MiB  image, brk heap        512 MiB  the heap of wrapped malloc
 *	shadow    0x40000000    1 GiB  of the second window
 *	engine    0x80000000  256 MiB  arena, list of regions, list of pages of tags
 *	shadow    0x90000000  768 MiB  of the first window; the undo log, where there is no shadow
 *	primary   0xc0000000    1 GiB  mappings, libraries, stack
 *
 * The shadow is primary - 0x80000000, modulo 2^32, so that the stack has one where the kernel has
 * put it. LMC adds an offset, for which all of the program has to lie below it: the kernel is asked
 * for its compact layout, and the stack is moved down at the start (section III-B), which the
 * kernel must be told by prctl or /proc/PID/cmdline is lost. Nothing of that is needed here.
 *
 * All else is closed, so that nothing is ever mapped where hooks have no tags for it.
 */
#ifndef CRN_LAYOUT_I386_H
#define CRN_LAYOUT_I386_H

#define CRN_RT_SHADOW_BELOW 0x80000000ul
#define CRN_RT_IMAGE_LEN    0x30000000ul
#define CRN_RT_MAPS_AT      0xc0000000ul
#define CRN_RT_MAPS_LEN     0x40000000ul

#define CRN_RT_ENGINE_AT  0x80000000ul
#define CRN_RT_ENGINE_LEN 0x10000000ul
#define CRN_RT_LIST_AT    0x88000000ul
#define CRN_RT_LIST_MAX   0x06000000ul
#define CRN_RT_LOG_AT     0x90000000ul
#define CRN_RT_LOG_MAX    0x30000000ul
#define CRN_RT_PAGES_AT   0x8e000000ul
#define CRN_RT_PAGES_MAX  0x01000000ul
#define CRN_RT_LISTED_AT  0x8f000000ul
#define CRN_RT_BERTHS_AT  0 /* anywhere */

#define CRN_RT_LINKED_THERE       true
#define CRN_RT_SHADOW_SIZE(shift) "the upper half of its addresses for the shadow"

#endif
