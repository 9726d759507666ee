; SPDX-License-Identifier: MIT
; Atomic writes have a hook like others, before the access; atomic loads and fences have none.
; RUN: CHECK link=on,report=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

; CHECK: cairn: atomics: 4 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 4 checks
; CHECK-LABEL: define void @atomics(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: atomicrmw add ptr %a
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: cmpxchg ptr %b
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: store atomic i32 1, ptr %c
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: load atomic
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: fence
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: atomicrmw xchg ptr %d
; CHECK: ret void
define void @atomics(ptr %a, ptr %b, ptr %c, ptr %d) {
  %1 = atomicrmw add ptr %a, i64 1 seq_cst, align 8
  %2 = cmpxchg ptr %b, i64 1, i64 2 seq_cst seq_cst, align 8
  store atomic i32 1, ptr %c seq_cst, align 4
  %3 = load atomic i32, ptr %c seq_cst, align 4
  fence seq_cst
  %4 = atomicrmw xchg ptr %d, i8 1 seq_cst, align 1
  ret void
}
