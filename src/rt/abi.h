/* SPDX-License-Identifier: MIT */
/*
 * Numbers on which the compiler's pass and the run-time must agree; both include them. Code with
 * hooks says by references to __cairn_abi_<word> what it was made for, and a run-time of another
 * kind does not define that word:
 *
 *	version_<CRN_RT_ABI>
 *	undolog | shadow_<region>[_threads] and tags_one | tags_epoch
 */
#ifndef CRN_RT_ABI_H
#define CRN_RT_ABI_H

/* One more whenever code of an older pass would go wrong with this run-time, or the other way. */
#define CRN_RT_ABI 4

/* struct crn_rt (rt.h) is so many words for the pass. */
#define CRN_RT_WORDS         6
#define CRN_RT_WORD_END      1
#define CRN_RT_WORD_EPOCH    2
#define CRN_RT_WORD_HOOKED   3
#define CRN_RT_WORD_PATIENCE 4
#define CRN_RT_WORD_FRESH    5

/* Of that word, with 64 bits: the address of a block; above it, its bytes by 16. */
#define CRN_RT_FRESH_SHIFT 48
#define CRN_RT_FRESH_UNIT  4 /* log2 */

/* What __cairn_site is told of its place. */
#define CRN_SITE_ONE_THREAD 1 /* other threads do not write */
#define CRN_SITE_LONG       2 /* its intervals are long */

/* Primary memory begins here (a multiple of 1 TiB); all that keeps checkpoints lies below. */
#define CRN_RT_IMAGE_AT_64 0x550000000000ull
#define CRN_RT_IMAGE_AT_32 0x10000000ul /* cairn-cc has it linked there */
#ifdef __i386__
#define CRN_RT_IMAGE_AT CRN_RT_IMAGE_AT_32
#else
#define CRN_RT_IMAGE_AT 0x550000000000ul
#endif

/*
 * Tags of regions of 1 << shift bytes lie at address >> shift. For regions of one byte (LMC, IV-D)
 * they are as large as what they are for, and lie this much below it.
 */
#define CRN_RT_TAGS_BELOW 0x0c0000000000ul

#endif
