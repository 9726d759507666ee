; SPDX-License-Identifier: MIT
; Stores to the function's own frame need no hook: a checkpoint copies the active stack. Those
; through a pointer that may be anything do, and so do all if the switch is off.
; RUN: CHECK link=on,report=on
; RUN: OFF link=on,report=on,stack=off
; RUN: LOG link=on,report=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare void @use(ptr)

; CHECK: cairn: frame: 3 writes, 2 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; LOG: cairn: frame: 3 writes, 2 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; OFF: cairn: frame: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK-LABEL: define void @frame(
; OFF-LABEL: define void @frame(
define void @frame(ptr %p, i64 %i) {
  %local = alloca [8 x i64]
  %element = getelementptr [8 x i64], ptr %local, i64 0, i64 %i
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 1, ptr %element
; OFF: cairn.tag{{[0-9]*}} = 
; OFF: store i64 1, ptr %element
  store i64 1, ptr %element, align 8
  call void @use(ptr %local)
; The address has escaped, and still it is the stack.
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 2, ptr %local
; OFF: cairn.tag{{[0-9]*}} = 
; OFF: store i64 2, ptr %local
  store i64 2, ptr %local, align 8
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 3, ptr %p
  store i64 3, ptr %p, align 8
  ret void
}

; One of two places: both are stack here, only one is there.
; CHECK-LABEL: define void @choice(
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 4, ptr %both
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 5, ptr %one
define void @choice(ptr %p, i1 %c) {
  %a = alloca i64
  %b = alloca i64
  %both = getelementptr i8, ptr %a, i64 0
  store i64 4, ptr %both, align 8
  %one = select i1 %c, ptr %b, ptr %p
  store i64 5, ptr %one, align 8
  ret void
}
