; SPDX-License-Identifier: MIT
; A program that gives blocks back may get one again that was in use at the checkpoint: what it held is
; to be kept, so no memory counts as fresh.
; RUN: CHECK link=on,report=on,native-quiet=on,fresh=on,heap=off

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare ptr @malloc(i64)
declare void @free(ptr)

; CHECK: cairn: reused: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: fresh: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks

; CHECK-LABEL: define void @reused(
; CHECK: cairn.tag =
; CHECK: store i64 1
define void @reused(ptr %p) {
  call void @free(ptr %p)
  %m = call ptr @malloc(i64 8)
  store i64 1, ptr %m, align 8
  ret void
}

; Freed or not here: the block may be one that another function has freed.
; CHECK-LABEL: define void @fresh(
; CHECK: cairn.tag =
; CHECK: store i64 1
define void @fresh() {
  %m = call ptr @malloc(i64 8)
  store i64 1, ptr %m, align 8
  ret void
}
