; SPDX-License-Identifier: MIT
; Inline assembly: an output that is a place in memory is a write; a clobber of all memory with an
; address among the operands is reported; neither a barrier nor arithmetic is.
; RUN: CHECK link=on,report=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

; CHECK: cairn: assembly: not covered: inline assembly that may store
; CHECK-NOT: not covered: inline
; CHECK: cairn: assembly: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: 1 other places not covered
; CHECK-LABEL: define void @assembly(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call void asm "movl
define void @assembly(ptr %p, i32 %v) {
  call void asm "movl $1, $0", "=*m,r,~{dirflag},~{fpsr},~{flags}"(ptr elementtype(i32) align 4 %p, i32 %v)
  call void asm sideeffect "movl $1, ($0)", "r,r,~{memory}"(ptr %p, i32 %v)
  call void asm sideeffect "", "~{memory}"()
  %r = call i32 asm "addl $1, $0", "=r,r,0"(i32 %v, i32 %v)
  ret void
}
