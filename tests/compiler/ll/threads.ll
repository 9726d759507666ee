; SPDX-License-Identifier: MIT
; With threads, another one may take a checkpoint wherever threads wait for each other: after that
; nothing counts as saved. A variable that is atomic and orders nothing lets none in.
; RUN: CHECK link=on,report=on,native-quiet=on,threads=on
; RUN: ALONE link=on,report=on,native-quiet=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare i32 @cairn_checkpoint(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)

; CHECK: cairn: locks: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: acquires: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: waits: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: tells: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK: cairn: counts: 2 writes, 0 stack, 0 fresh, 0 loops, 1 aggregated, 0 redundant, 1 checks
; ALONE: cairn: locks: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; ALONE: cairn: waits: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks

define i32 @main(ptr %a, ptr %b) {
  %r = call i32 @cairn_checkpoint(ptr %a, ptr %b)
  ret i32 %r
}

define internal void @locks(ptr %p, ptr %lock) {
  store i64 1, ptr %p, align 8
  %r = call i32 @pthread_mutex_lock(ptr null)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @acquires(ptr %p, ptr %flag) {
  store i64 1, ptr %p, align 8
  %r = load atomic i32, ptr %flag acquire, align 4
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @waits(ptr %p, ptr %flag) {
  store i64 1, ptr %p, align 8
  br label %again
again:
  %f = load volatile i32, ptr %flag, align 4
  %c = icmp eq i32 %f, 0
  br i1 %c, label %again, label %end
end:
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @tells(ptr %p, ptr %flag) {
  store i64 1, ptr %p, align 8
  store volatile i32 1, ptr %flag, align 4
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @counts(ptr %p, ptr %flag) {
  store i64 1, ptr %p, align 8
  %r = load atomic i32, ptr %flag monotonic, align 4
  store i64 2, ptr %p, align 8
  ret void
}
