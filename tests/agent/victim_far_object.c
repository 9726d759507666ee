/* SPDX-License-Identifier: MIT */
/*
 * An object whose code begins 512 MiB behind its head, so that what lies below is its own. Its
 * functions are shorter than a jump and stand side by side; far_falling goes on in the next one.
 */
__asm__(".text\n"
	".macro function name\n"
	".globl \\name\n"
	".type \\name, @function\n"
	"\\name:\n"
	".endm\n"
	"function far_falling\n"
	"	inc %edi\n"
	"function far_entered\n"
	"	lea 1(%rdi), %eax\n"
	"	ret\n"
	"function far_function\n"
	"	lea 1(%rdi), %eax\n"
	"	ret\n"
	"function far_neighbour\n"
	"	lea 2(%rdi), %eax\n"
	"	ret\n");
