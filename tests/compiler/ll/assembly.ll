; SPDX-License-Identifier: MIT
; Inline assembly: an output that is a place in memory is a write; a clobber of all memory is
; reported, and a memory operand off an address in a register; neither a barrier nor arithmetic is.
; Assembly outside of functions is reported, and so are functions that get no hooks, like those that
; indirect functions ask which one they are. The warning counts all that.
; RUN: CHECK link=on,report=on
; RUN: WARN link=on,warn-uncovered=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

module asm ".globl of_assembly"

; WARN: cairn: warning: 0 external functions and 6 other places may write memory
; CHECK: cairn: outside of functions: not covered: assembly that may store
; CHECK: cairn: resolve: not covered: a resolver of an indirect function
; CHECK: cairn: bare: not covered: a naked function
; CHECK: cairn: assembly: not covered: inline assembly that may store
; CHECK: cairn: assembly: not covered: inline assembly that may store
; CHECK: cairn: assembly: not covered: inline assembly that may store
; CHECK-NOT: not covered: inline
; CHECK: cairn: assembly: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: 6 other places not covered
; CHECK-LABEL: define ptr @resolve(
; CHECK-NOT: cairn
; CHECK: ret ptr
; CHECK-LABEL: define void @assembly(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call void asm "movl

@indirect = ifunc void (ptr, i32), ptr @resolve
@chosen = global i32 0

define ptr @resolve() {
  store i32 1, ptr @chosen
  ret ptr @assembly
}

define void @assembly(ptr %p, i32 %v) {
  call void asm "movl $1, $0", "=*m,r,~{dirflag},~{fpsr},~{flags}"(ptr elementtype(i32) align 4 %p, i32 %v)
  call void asm sideeffect "movl $1, ($0)", "r,r,~{memory}"(ptr %p, i32 %v)
  call void asm sideeffect "movl $0, of_assembly(%rip)", "r,~{memory}"(i32 %v)
  call void asm sideeffect "movl $1, ($0)", "r,r"(ptr %p, i32 %v)
  call void asm sideeffect "", "~{memory}"()
  call void asm sideeffect "", "r,~{memory}"(ptr %p)
  call void asm sideeffect "mfence", "~{memory}"()
  %r = call i32 asm "addl $1, $0", "=r,r,0"(i32 %v, i32 %v)
  ret void
}

define void @bare() naked {
  call void asm sideeffect "ret", ""()
  unreachable
}
