/* SPDX-License-Identifier: MIT */
/*
 * size_t crn_delta_make_wide(void *out, uint64_t lines, void *frame, const void *now): as
 * crn_delta_make, a line at a time, where there are registers for one (AVX-512F, DQ and BW). The
 * words that differ are squeezed together and stored with what is behind them, which the next line
 * overwrites: at most 64 bytes per line, as crn_delta_bound says. Only registers that no legacy
 * instruction reaches are used (os/guarded.S).
 */
	.text
	.globl crn_delta_make_wide
	.hidden crn_delta_make_wide
	.type crn_delta_make_wide, @function
	.balign 16
crn_delta_make_wide:
	subq $136, %rsp
	vmovdqu64 %zmm16, (%rsp)
	vmovdqu64 %zmm17, 64(%rsp)
	kmovq %k1, %r11
	movq %rsi, (%rdi)
	leaq 8(%rdi), %r8 /* which words differ, a byte for each line, padded with zeros */
	popcntq %rsi, %rax
	addl $7, %eax
	andl $-8, %eax
	leaq (%r8,%rax), %r10 /* the differences */
	testq %rsi, %rsi
	jz 2f
	movq $0, -8(%r10)
	.balign 16
1:	tzcntq %rsi, %rax
	blsrq %rsi, %rsi
	shll $6, %eax
	vmovdqu64 (%rcx,%rax), %zmm16
	vpxorq (%rdx,%rax), %zmm16, %zmm17
	vmovdqu64 %zmm16, (%rdx,%rax)
	vptestmq %zmm17, %zmm17, %k1
	vpcompressq %zmm17, %zmm17{%k1}{z}
	vmovdqu64 %zmm17, (%r10)
	kmovb %k1, %eax
	movb %al, (%r8)
	incq %r8
	popcntl %eax, %eax
	leaq (%r10,%rax,8), %r10
	testq %rsi, %rsi
	jnz 1b
2:	kmovq %r11, %k1
	vmovdqu64 (%rsp), %zmm16
	vmovdqu64 64(%rsp), %zmm17
	addq $136, %rsp
	movq %r10, %rax
	subq %rdi, %rax
	ret
	.size crn_delta_make_wide, . - crn_delta_make_wide
	.section .note.GNU-stack, "", @progbits
