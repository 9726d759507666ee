/* SPDX-License-Identifier: MIT */
/*
 * Which kind of tags a program has. Compiled once for each kind. A program links the one that
 * cairn-cc was asked for; code with hooks of the other family does not link.
 */
#include "rt/rt.h"

#ifndef CRN_TAGS /* for readers' tools alone */
#define CRN_TAGS   CRN_TAGS_ZERO
#define CRN_FAMILY one
#endif
#define NAMED_(n) __cairn_abi_tags_##n
#define NAMED(n)  NAMED_(n)

const char NAMED(CRN_FAMILY) __attribute__((visibility("default"))) = 1;
const uint32_t __cairn_tags = CRN_TAGS;
