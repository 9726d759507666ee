/* SPDX-License-Identifier: MIT */
/*
 * The functions of guarded.h. Legacy (not VEX) SSE2 leaves the upper halves of ymm and zmm alone,
 * so that saving the xmm registers that are used is enough: the engine may not disturb the vector
 * state of the program.
 *
 * Where crn_guarded_registers says so pages are compared by whole lines, in zmm16 and above, which
 * no legacy instruction reaches: the upper halves of the lower ones stay as clean as they were. Or
 * they are compared and copied by halves of lines, in ymm: BORROW_HALVES to RETURN_HALVES.
 */
#include "os/guarded_asm.h"

#define HALVES 1 /* enum crn_registers */

/*
 * ymm0 to ymm3, and %r11b. Upper halves that have been written to make all legacy instructions
 * after them depend on them, even if they are zeros: so if all of the program's are, they are left
 * clean, and else as they were. Flags change; %rsp is 136 lower in between.
 */
.macro BORROW_HALVES
	subq $136, %rsp
	vmovdqu %ymm0, (%rsp)
	vmovdqu %ymm1, 32(%rsp)
	vmovdqu %ymm2, 64(%rsp)
	vmovdqu %ymm3, 96(%rsp)
	vpor %ymm4, %ymm0, %ymm0
	vpor %ymm5, %ymm1, %ymm1
	vpor %ymm6, %ymm2, %ymm2
	vpor %ymm7, %ymm3, %ymm3
	vpor %ymm8, %ymm0, %ymm0
	vpor %ymm9, %ymm1, %ymm1
	vpor %ymm10, %ymm2, %ymm2
	vpor %ymm11, %ymm3, %ymm3
	vpor %ymm12, %ymm0, %ymm0
	vpor %ymm13, %ymm1, %ymm1
	vpor %ymm14, %ymm2, %ymm2
	vpor %ymm15, %ymm3, %ymm3
	vpor %ymm1, %ymm0, %ymm0
	vpor %ymm3, %ymm2, %ymm2
	vpor %ymm2, %ymm0, %ymm0
	vextracti128 $1, %ymm0, %xmm0
	vptest %xmm0, %xmm0
	setz %r11b /* all upper halves are zeros */
.endm
.macro RETURN_HALVES
	testb %r11b, %r11b
	jz 8f
	vzeroupper
	movups (%rsp), %xmm0
	movups 32(%rsp), %xmm1
	movups 64(%rsp), %xmm2
	movups 96(%rsp), %xmm3
	jmp 9f
8:	vmovdqu (%rsp), %ymm0
	vmovdqu 32(%rsp), %ymm1
	vmovdqu 64(%rsp), %ymm2
	vmovdqu 96(%rsp), %ymm3
9:	addq $136, %rsp
.endm

/* `count` registers from zmm16 on. Flags change; %rsp is 64 * count + 8 lower in between. */
.macro BORROW_LINES count
	subq $64 * \count + 8, %rsp
.irp register, 16, 17, 18, 19, 20, 21
.if \register < 16 + \count
	vmovdqu64 %zmm\register, 64 * \register - 1024(%rsp)
.endif
.endr
.endm
.macro RETURN_LINES count
.irp register, 16, 17, 18, 19, 20, 21
.if \register < 16 + \count
	vmovdqu64 64 * \register - 1024(%rsp), %zmm\register
.endif
.endr
	addq $64 * \count + 8, %rsp
.endm

	.hidden crn_guarded_registers, crn_guarded_keys
	.text
/* int crn_guarded_copy(void *to, const void *from, size_t len) */
	GUARDED crn_guarded_copy
	movq %rdx, %rcx
crn_guarded_copy_begin:
	rep movsb
crn_guarded_copy_end:
	xorl %eax, %eax
	ret
crn_guarded_copy_failed:
	movl $-14, %eax
	ret
	.size crn_guarded_copy, . - crn_guarded_copy

/* size_t crn_guarded_copy_pages(const struct crn_page_copy *copies, size_t count) */
	GUARDED crn_guarded_copy_pages
	movq %rdi, %r8
	movq %rsi, %rdx
	xorl %eax, %eax
	cmpb $HALVES, crn_guarded_registers(%rip)
	je crn_guarded_copy_pages_halves
	jmp 2f
1:	movq (%r8), %rdi
	movq 8(%r8), %rsi
	addq $16, %r8
	movl $4096, %ecx
crn_guarded_copy_pages_begin:
	rep movsb
crn_guarded_copy_pages_end:
	incq %rax
2:	cmpq %rdx, %rax
	jne 1b
crn_guarded_copy_pages_failed:
	ret
	.size crn_guarded_copy_pages, . - crn_guarded_copy_pages

	GUARDED crn_guarded_copy_pages_halves
	BORROW_HALVES
	jmp 3f
1:	movq (%r8), %rdi
	movq 8(%r8), %rsi
	addq $16, %r8
	xorl %ecx, %ecx
	.balign 16
crn_guarded_copy_pages_halves_begin:
2:	vmovdqa (%rsi,%rcx), %ymm0
	vmovdqa 32(%rsi,%rcx), %ymm1
	vmovdqa 64(%rsi,%rcx), %ymm2
	vmovdqa 96(%rsi,%rcx), %ymm3
	vmovdqa %ymm0, (%rdi,%rcx)
	vmovdqa %ymm1, 32(%rdi,%rcx)
	vmovdqa %ymm2, 64(%rdi,%rcx)
	vmovdqa %ymm3, 96(%rdi,%rcx)
	subl $-128, %ecx
	cmpl $4096, %ecx
	jne 2b
crn_guarded_copy_pages_halves_end:
	incq %rax
3:	cmpq %rdx, %rax
	jne 1b
crn_guarded_copy_pages_halves_failed:
	RETURN_HALVES
	ret
	.size crn_guarded_copy_pages_halves, . - crn_guarded_copy_pages_halves

/* int crn_guarded_store(void *at) */
	GUARDED crn_guarded_store
	xorl %eax, %eax
crn_guarded_store_begin:
	lock orb $0, (%rdi)
crn_guarded_store_end:
	ret
crn_guarded_store_failed:
	movl $-14, %eax
	ret
	.size crn_guarded_store, . - crn_guarded_store

/* int crn_guarded_lines(const void *old, const void *live, uint64_t *lines) */
	GUARDED crn_guarded_lines
	cmpb $HALVES, crn_guarded_registers(%rip)
	je crn_guarded_lines_halves
	ja crn_guarded_lines_wide
	subq $88, %rsp
	movaps %xmm0, (%rsp)
	movaps %xmm1, 16(%rsp)
	movaps %xmm2, 32(%rsp)
	movaps %xmm3, 48(%rsp)
	movaps %xmm4, 64(%rsp)
	pxor %xmm4, %xmm4
	xorl %r8d, %r8d
	movl $1, %ecx
crn_guarded_lines_begin:
1:	movdqa (%rdi), %xmm0
	movdqa 16(%rdi), %xmm1
	movdqa 32(%rdi), %xmm2
	movdqa 48(%rdi), %xmm3
	pxor (%rsi), %xmm0
	pxor 16(%rsi), %xmm1
	pxor 32(%rsi), %xmm2
	pxor 48(%rsi), %xmm3
	por %xmm1, %xmm0
	por %xmm3, %xmm2
	por %xmm2, %xmm0
	pcmpeqb %xmm4, %xmm0
	pmovmskb %xmm0, %eax
	addq $64, %rdi
	addq $64, %rsi
	xorl $0xffff, %eax
	negl %eax /* carry: the line differs */
	sbbq %rax, %rax
	andq %rcx, %rax
	orq %rax, %r8
	addq %rcx, %rcx
	jnz 1b
crn_guarded_lines_end:
	movq %r8, (%rdx)
	xorl %eax, %eax
2:	movaps (%rsp), %xmm0
	movaps 16(%rsp), %xmm1
	movaps 32(%rsp), %xmm2
	movaps 48(%rsp), %xmm3
	movaps 64(%rsp), %xmm4
	addq $88, %rsp
	ret
crn_guarded_lines_failed:
	movl $-14, %eax
	jmp 2b
	.size crn_guarded_lines, . - crn_guarded_lines

	GUARDED crn_guarded_lines_halves
	BORROW_HALVES
	xorl %ecx, %ecx
	.balign 16
crn_guarded_lines_halves_begin:
1:	vmovdqa (%rdi,%rcx), %ymm0
	vmovdqa 32(%rdi,%rcx), %ymm1
	vmovdqa 64(%rdi,%rcx), %ymm2
	vmovdqa 96(%rdi,%rcx), %ymm3
	vpcmpeqb (%rsi,%rcx), %ymm0, %ymm0
	vpcmpeqb 32(%rsi,%rcx), %ymm1, %ymm1
	vpcmpeqb 64(%rsi,%rcx), %ymm2, %ymm2
	vpcmpeqb 96(%rsi,%rcx), %ymm3, %ymm3
	vpand %ymm1, %ymm0, %ymm0
	vpand %ymm3, %ymm2, %ymm2
	vpmovmskb %ymm0, %eax
	vpmovmskb %ymm2, %r9d
	addl $1, %eax /* carry: the line is the same */
	rcrq $1, %r8
	addl $1, %r9d
	rcrq $1, %r8
	subl $-128, %ecx
	cmpl $4096, %ecx
	jne 1b
crn_guarded_lines_halves_end:
	notq %r8
	movq %r8, (%rdx)
	xorl %eax, %eax
2:	RETURN_HALVES
	ret
crn_guarded_lines_halves_failed:
	movl $-14, %eax
	jmp 2b
	.size crn_guarded_lines_halves, . - crn_guarded_lines_halves

	GUARDED crn_guarded_lines_wide
	BORROW_LINES 1
	kmovq %k1, %r9
	COMPARE_LINES crn_guarded_lines_wide, %rdi, %rsi, %rcx, %ecx, %r8
	movq %r8, (%rdx)
	xorl %eax, %eax
2:	kmovq %r9, %k1
	RETURN_LINES 1
	ret
crn_guarded_lines_wide_failed:
	movl $-14, %eax
	jmp 2b
	.size crn_guarded_lines_wide, . - crn_guarded_lines_wide

/* int crn_guarded_copy_lines(void *to, const void *from, uint64_t lines) */
	GUARDED crn_guarded_copy_lines
	testq %rdx, %rdx
	jz 2f
	cmpb $HALVES, crn_guarded_registers(%rip)
	ja crn_guarded_copy_lines_wide
1:	rep bsfq %rdx, %rcx /* tzcnt, where there is one: a bit is set */
	shll $6, %ecx
	leaq -1(%rdx), %rax
	andq %rax, %rdx
crn_guarded_copy_lines_begin:
.irp at, 0, 16, 32, 48
	movq \at(%rsi,%rcx), %rax
	movq \at + 8(%rsi,%rcx), %r8
	movq %rax, \at(%rdi,%rcx)
	movq %r8, \at + 8(%rdi,%rcx)
.endr
crn_guarded_copy_lines_end:
	testq %rdx, %rdx
	jnz 1b
2:	xorl %eax, %eax
	ret
crn_guarded_copy_lines_failed:
	movl $-14, %eax
	ret
	.size crn_guarded_copy_lines, . - crn_guarded_copy_lines

	GUARDED crn_guarded_copy_lines_wide
	subq $72, %rsp
	vmovdqu64 %zmm16, (%rsp)
1:	tzcntq %rdx, %rcx
	blsrq %rdx, %rdx
	shll $6, %ecx
crn_guarded_copy_lines_wide_begin:
	vmovdqu64 (%rsi,%rcx), %zmm16
	vmovdqu64 %zmm16, (%rdi,%rcx)
crn_guarded_copy_lines_wide_end:
	testq %rdx, %rdx
	jnz 1b
	xorl %eax, %eax
2:	vmovdqu64 (%rsp), %zmm16
	addq $72, %rsp
	ret
crn_guarded_copy_lines_wide_failed:
	movl $-14, %eax
	jmp 2b
	.size crn_guarded_copy_lines_wide, . - crn_guarded_copy_lines_wide

/* int crn_guarded_line_differs(const void *old, const void *live, unsigned line) */
	GUARDED crn_guarded_line_differs
	shll $6, %edx
	xorl %eax, %eax
	xorl %ecx, %ecx
crn_guarded_line_differs_begin:
.irp at, 0, 16, 32, 48
	movq \at(%rdi,%rdx), %r8
	movq \at + 8(%rdi,%rdx), %r9
	xorq \at(%rsi,%rdx), %r8
	xorq \at + 8(%rsi,%rdx), %r9
	orq %r8, %rcx
	orq %r9, %rcx
.endr
crn_guarded_line_differs_end:
	testq %rcx, %rcx
	setnz %al
	ret
crn_guarded_line_differs_failed:
	movl $-14, %eax
	ret
	.size crn_guarded_line_differs, . - crn_guarded_line_differs

/*
 * unsigned crn_guarded_line(const void *old, const void *live, unsigned hint, const void *next_old,
 * const void *next_live)
 */
	GUARDED crn_guarded_line
	cmpb $HALVES, crn_guarded_registers(%rip)
	je crn_guarded_line_halves
	ja crn_guarded_line_wide
	subq $72, %rsp
	movaps %xmm0, (%rsp)
	movaps %xmm1, 16(%rsp)
	movaps %xmm2, 32(%rsp)
	movaps %xmm3, 48(%rsp)
	shll $6, %edx
	movl %edx, %ecx
	.balign 16
crn_guarded_line_begin:
1:	movdqa (%rdi,%rcx), %xmm0
	movdqa 16(%rdi,%rcx), %xmm1
	movdqa 32(%rdi,%rcx), %xmm2
	movdqa 48(%rdi,%rcx), %xmm3
	pcmpeqb (%rsi,%rcx), %xmm0
	pcmpeqb 16(%rsi,%rcx), %xmm1
	pcmpeqb 32(%rsi,%rcx), %xmm2
	pcmpeqb 48(%rsi,%rcx), %xmm3
	pand %xmm1, %xmm0
	pand %xmm3, %xmm2
	pand %xmm2, %xmm0
	pmovmskb %xmm0, %eax
	cmpl $0xffff, %eax
	jne crn_guarded_line_failed
	addl $64, %ecx
	andl $4095, %ecx
	cmpl %edx, %ecx
	jne 1b
crn_guarded_line_end:
	movl $4096, %ecx
crn_guarded_line_failed:
	movaps (%rsp), %xmm0
	movaps 16(%rsp), %xmm1
	movaps 32(%rsp), %xmm2
	movaps 48(%rsp), %xmm3
	addq $72, %rsp
	movl %ecx, %eax
	shrl $6, %eax
	ret
	.size crn_guarded_line, . - crn_guarded_line

	GUARDED crn_guarded_line_halves
	BORROW_HALVES
	shll $6, %edx
	movl %edx, %ecx
	.balign 16
crn_guarded_line_halves_begin:
1:	vmovdqa (%rdi,%rcx), %ymm0
	vmovdqa 32(%rdi,%rcx), %ymm1
	vpcmpeqb (%rsi,%rcx), %ymm0, %ymm0
	vpcmpeqb 32(%rsi,%rcx), %ymm1, %ymm1
	vpand %ymm1, %ymm0, %ymm0
	vpmovmskb %ymm0, %eax
	incl %eax
	jnz crn_guarded_line_halves_failed
	addl $64, %ecx
	andl $4095, %ecx
	cmpl %edx, %ecx
	jne 1b
crn_guarded_line_halves_end:
	movl $4096, %ecx
crn_guarded_line_halves_failed:
	RETURN_HALVES
	movl %ecx, %eax
	shrl $6, %eax
	ret
	.size crn_guarded_line_halves, . - crn_guarded_line_halves

	/*
	 * Four lines at a time, for the branches; and of the next pages a half is fetched
	 * meanwhile: the processor's own fetching begins anew with each page.
	 */
	GUARDED crn_guarded_line_wide
	BORROW_LINES 5
	kmovq %k1, %r9
	movq %rcx, %r10
	movq %r8, %r11
	xorl %r8d, %r8d
	shll $6, %edx
	movl %edx, %ecx
	jmp 4f
crn_guarded_line_wide_begin:
	/* single ones, up to a multiple of four */
3:	vmovdqa64 (%rdi,%rcx), %zmm16
	vpcmpneqq (%rsi,%rcx), %zmm16, %k1
	kortestw %k1, %k1
	jnz 2f
	addl $64, %ecx
4:	testl $255, %ecx
	jnz 3b
	andl $4095, %ecx
	.balign 16
1:	prefetcht0 (%r10,%r8)
	prefetcht0 (%r11,%r8)
	prefetcht0 64(%r10,%r8)
	prefetcht0 64(%r11,%r8)
	addl $128, %r8d
	vmovdqa64 (%rdi,%rcx), %zmm16
	vmovdqa64 64(%rdi,%rcx), %zmm17
	vmovdqa64 128(%rdi,%rcx), %zmm18
	vmovdqa64 192(%rdi,%rcx), %zmm19
	vpxorq (%rsi,%rcx), %zmm16, %zmm16
	vpxorq 64(%rsi,%rcx), %zmm17, %zmm17
	vpxorq 128(%rsi,%rcx), %zmm18, %zmm18
	vpxorq 192(%rsi,%rcx), %zmm19, %zmm19
	vporq %zmm16, %zmm17, %zmm20
	vpternlogq $0xfe, %zmm18, %zmm19, %zmm20 /* or of all three */
	vptestmq %zmm20, %zmm20, %k1
	kortestw %k1, %k1
	jnz 5f
	addl $256, %ecx
	andl $4095, %ecx
	cmpl $2048, %r8d
	jne 1b
crn_guarded_line_wide_end:
	movl $4096, %ecx
2:	kmovq %r9, %k1
	RETURN_LINES 5
	movl %ecx, %eax
	shrl $6, %eax
	ret
5:
.irp reg, %zmm16, %zmm17, %zmm18
	vptestmq \reg, \reg, %k1
	kortestw %k1, %k1
	jnz 2b
	addl $64, %ecx
.endr
	jmp 2b
crn_guarded_line_wide_failed:
	jmp 2b
	.size crn_guarded_line_wide, . - crn_guarded_line_wide

/*
 * int crn_guarded_hash(const void *page, uint64_t hash[2], const void *next)
 *
 * zmm20 and zmm21 are the sums of products, as polynomials, of the first keys and the second. Two
 * lines a turn: one instruction adds both products of a key. In the end the quarters of each sum
 * are added up and reduced by x^64 = x^4 + x^3 + x + 1, twice, because the first time leaves three
 * bits above.
 */
#define X_64 0x1b
	GUARDED crn_guarded_hash
	BORROW_LINES 6
	leaq crn_guarded_keys(%rip), %r8
	vpxorq %zmm20, %zmm20, %zmm20
	vpxorq %zmm21, %zmm21, %zmm21
	xorl %ecx, %ecx
	.balign 16
crn_guarded_hash_begin:
1:	prefetcht0 (%rdx,%rcx)
	prefetcht0 64(%rdx,%rcx)
	vmovdqa64 (%rdi,%rcx), %zmm16
	vmovdqa64 64(%rdi,%rcx), %zmm18
	vpxorq (%r8,%rcx), %zmm16, %zmm17
	vpxorq 4096(%r8,%rcx), %zmm16, %zmm16
	vpxorq 64(%r8,%rcx), %zmm18, %zmm19
	vpxorq 4096 + 64(%r8,%rcx), %zmm18, %zmm18
	vpclmulqdq $1, %zmm17, %zmm17, %zmm17 /* one word of each pair by the other */
	vpclmulqdq $1, %zmm16, %zmm16, %zmm16
	vpclmulqdq $1, %zmm19, %zmm19, %zmm19
	vpclmulqdq $1, %zmm18, %zmm18, %zmm18
	vpternlogq $0x96, %zmm17, %zmm19, %zmm20 /* xor of all three */
	vpternlogq $0x96, %zmm16, %zmm18, %zmm21
	subl $-128, %ecx
	cmpl $4096, %ecx
	jne 1b
crn_guarded_hash_end:
	movl $X_64, %ecx
	vmovq %rcx, %xmm19
.irp sum, 20, 21
	vextracti64x4 $1, %zmm\sum, %ymm16
	vpxorq %ymm16, %ymm\sum, %ymm\sum
	vextracti64x2 $1, %ymm\sum, %xmm16
	vpxorq %xmm16, %xmm\sum, %xmm\sum
	vpclmulqdq $1, %xmm19, %xmm\sum, %xmm16
	vpclmulqdq $1, %xmm19, %xmm16, %xmm17
	vpternlogq $0x96, %xmm16, %xmm17, %xmm\sum
.endr
	vmovq %xmm20, (%rsi)
	vmovq %xmm21, 8(%rsi)
	xorl %eax, %eax
2:	RETURN_LINES 6
	ret
crn_guarded_hash_failed:
	movl $-14, %eax
	jmp 2b
	.size crn_guarded_hash, . - crn_guarded_hash
	.section .note.GNU-stack, "", @progbits
