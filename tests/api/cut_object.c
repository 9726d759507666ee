/* SPDX-License-Identifier: MIT */
/* An object of which blocked_faults.c loads a copy, and cuts that short. */
#include <stdint.h>

extern uint8_t cut_data[64 * 4096];
__attribute__((visibility("default"))) uint8_t cut_data[64 * 4096] = { [4096] = 1 };
