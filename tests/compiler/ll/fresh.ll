; SPDX-License-Identifier: MIT
; Memory that was allocated in the same interval needs no hooks, wherever its address goes; after a
; checkpoint it does. Wrappers of malloc count; a malloc that is part of the program, and a pointer that
; may be to older memory do not.
; RUN: CHECK link=on,report=on,native-quiet=on,fresh=on,heap=off
; RUN: OFF link=on,report=on,native-quiet=on,heap=off
; RUN: LOG link=on,report=on,native-quiet=on,fresh=on,tracker=undolog,heap=off

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@list = internal global ptr null

declare ptr @malloc(i64)
declare i32 @cairn_checkpoint(ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @abort()

; CHECK: cairn: fresh: 4 writes, 0 stack, 3 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: later: 2 writes, 0 stack, 1 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: around: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: each: 1 writes, 0 stack, 1 fresh, 0 loops, 0 aggregated, 0 redundant, 0 checks
; CHECK: cairn: wrapped: 1 writes, 0 stack, 1 fresh, 0 loops, 0 aggregated, 0 redundant, 0 checks
; CHECK: cairn: either: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: own: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: @__cairn_fresh_on = weak_odr constant i8 1
; OFF: cairn: fresh: 4 writes, 0 stack, 0 fresh
; OFF-NOT: @__cairn_fresh_on
; LOG: cairn: fresh: 4 writes, 0 stack, 3 fresh

; Published, and still new.
; CHECK-LABEL: define void @fresh(
; CHECK: store ptr %m, ptr @list
; CHECK-NOT: cairn
; CHECK: ret void
define void @fresh(i64 %n) {
  %m = call ptr @malloc(i64 %n)
  store i64 1, ptr %m, align 8
  store ptr %m, ptr @list, align 8
  call void @llvm.memset.p0.i64(ptr %m, i8 0, i64 %n, i1 false)
  %q = getelementptr i64, ptr %m, i64 %n
  store i64 2, ptr %q, align 8
  ret void
}

; CHECK-LABEL: define void @later(
; CHECK: call i32 @cairn_checkpoint
; CHECK: cairn.tag = 
define void @later() {
  %m = call ptr @malloc(i64 8)
  store i64 1, ptr %m, align 8
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  store i64 2, ptr %m, align 8
  ret void
}

; The checkpoint comes after the store, and before the next one.
define void @around(i1 %c) {
  %m = call ptr @malloc(i64 8)
  br label %loop
loop:
  store i64 1, ptr %m, align 8
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  br i1 %c, label %loop, label %end
end:
  ret void
}

; New in each round.
define void @each(i1 %c) {
  br label %loop
loop:
  %m = call ptr @malloc(i64 8)
  store i64 1, ptr %m, align 8
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  br i1 %c, label %loop, label %end
end:
  ret void
}

define internal ptr @allocate(i64 %n) noinline {
  %m = call ptr @malloc(i64 %n)
  %null = icmp eq ptr %m, null
  br i1 %null, label %fail, label %end
fail:
  call void @abort()
  unreachable
end:
  ret ptr %m
}

define void @wrapped() {
  %m = call ptr @allocate(i64 8)
  store i64 1, ptr %m, align 8
  ret void
}

define void @either(ptr %p, i1 %c) {
  %m = call ptr @malloc(i64 8)
  %q = select i1 %c, ptr %m, ptr %p
  store i64 1, ptr %q, align 8
  ret void
}

define internal ptr @calloc(i64 %n, i64 %size) noinline {
  %p = load ptr, ptr @list
  ret ptr %p
}

define void @own() {
  %m = call ptr @calloc(i64 1, i64 8)
  store i64 1, ptr %m, align 8
  ret void
}
