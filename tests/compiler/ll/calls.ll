; SPDX-License-Identifier: MIT
; Which calls can reach a checkpoint. A function that takes one has its address taken, so a call
; through a pointer may be to it, if it gives as many arguments as that takes; and so may what libc
; or a library calls back. libc's functions that call nobody may not.
; RUN: CHECK link=on,report=on,native-quiet=on
; RUN: OFF link=on,report=on,native-quiet=on,calls=off
; RUN: NATIVE link=on,report=on
; RUN: LOG link=on,report=on,native-quiet=on,tracker=undolog
; RUN: LOGOFF link=on,report=on,native-quiet=on,calls=off,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@handler = internal global ptr @takes

declare i32 @cairn_checkpoint(ptr, ptr)
declare i32 @cairn_pause(ptr)
declare i32 @cairn_resume(ptr)
declare i32 @epoll_wait(i32, ptr, i32, i32)
declare void @qsort(ptr, i64, i64, ptr)
declare void @of_a_library()

define internal void @takes(ptr %a, ptr %b) {
  %r = call i32 @cairn_checkpoint(ptr %a, ptr %b)
  ret void
}

; CHECK: cairn: libc: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: sorted: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: enough: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: too_few: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: elsewhere: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: direct: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: rests: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: resumes: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; OFF: cairn: libc: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; OFF: cairn: too_few: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; LOG: cairn: libc: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; LOG: cairn: enough: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; LOG: cairn: too_few: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; LOGOFF: cairn: libc: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; Native code that may take checkpoints: any call through a pointer may be to it.
; NATIVE: cairn: libc: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; NATIVE: cairn: too_few: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
define internal void @libc(ptr %p) {
  store i64 1, ptr %p, align 8
  %n = call i32 @epoll_wait(i32 3, ptr null, i32 0, i32 0)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @sorted(ptr %p, ptr %f) {
  store i64 1, ptr %p, align 8
  call void @qsort(ptr null, i64 0, i64 0, ptr %f)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @enough(ptr %p, ptr %f) {
  store i64 1, ptr %p, align 8
  call void %f(ptr %p, ptr %p, i32 1)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @too_few(ptr %p, ptr %f) {
  store i64 1, ptr %p, align 8
  call void %f(ptr %p)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @elsewhere(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @of_a_library()
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @direct(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @enough(ptr %p, ptr null)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @rests(ptr %p) {
  store i64 1, ptr %p, align 8
  %n = call i32 @cairn_pause(ptr null)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @resumes(ptr %p) {
  store i64 1, ptr %p, align 8
  %n = call i32 @cairn_resume(ptr null)
  store i64 2, ptr %p, align 8
  ret void
}
