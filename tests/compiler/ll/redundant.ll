; SPDX-License-Identifier: MIT
; What a hook that dominates has saved in the same interval is saved. A call that can reach a
; checkpoint begins another interval; one that provably cannot does not.
; RUN: CHECK link=on,report=on
; RUN: OFF link=on,report=on,redundant=off
; RUN: UNIT report=on
; RUN: LOG link=on,report=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@word = internal global i64 0
@session = internal global ptr null

declare i32 @cairn_checkpoint(ptr, ptr)
declare i64 @strlen(ptr)

; CHECK: cairn: same: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: part: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: wider: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK: cairn: one_side: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: again: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: around: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: harmless: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: through: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: twice: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; OFF: cairn: same: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; Alone, a unit does not know what the other functions reach, but for libc's.
; UNIT: cairn: same: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; UNIT: cairn: harmless: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; LOG: cairn: same: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; LOG: cairn: wider: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks

; CHECK-LABEL: define void @same(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 1
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: ret void
define void @same(ptr %p, i1 %c) {
  store i64 1, ptr %p, align 8
  br i1 %c, label %then, label %end
then:
  store i64 2, ptr %p, align 8
  br label %end
end:
  ret void
}

define void @part(ptr %p, i1 %c) {
  store i64 1, ptr %p, align 8
  br i1 %c, label %then, label %end
then:
  %q = getelementptr i8, ptr %p, i64 4
  store i32 2, ptr %q, align 4
  br label %end
end:
  ret void
}

; Regions are of the tags' making; bytes are what the rule is about.
define void @wider(ptr %p, i1 %c) {
  store i32 1, ptr %p, align 4
  br i1 %c, label %then, label %end
then:
  store i64 2, ptr %p, align 4
  br label %end
end:
  ret void
}

define void @one_side(ptr %p, i1 %c) {
  br i1 %c, label %then, label %end
then:
  store i64 1, ptr %p, align 8
  br label %end
end:
  store i64 2, ptr %p, align 8
  ret void
}

; CHECK-LABEL: define void @again(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call i32 @cairn_checkpoint
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: ret void
define void @again(ptr %p) {
  store i64 1, ptr %p, align 8
  %s = load ptr, ptr @session
  %r = call i32 @cairn_checkpoint(ptr %s, ptr null)
  store i64 2, ptr %p, align 8
  ret void
}

; The second store dominates nothing, the first is before a loop that takes checkpoints.
define void @around(ptr %p, i1 %c) {
  store i64 1, ptr %p, align 8
  br label %loop
loop:
  store i64 2, ptr %p, align 8
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  br i1 %c, label %loop, label %end
end:
  ret void
}

define internal void @quiet() noinline {
  ret void
}

define void @harmless(ptr %p, ptr %text) {
  store i64 1, ptr %p, align 8
  call void @quiet()
  %n = call i64 @strlen(ptr %text)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @loud() noinline {
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  ret void
}

define void @through(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @loud()
  store i64 2, ptr %p, align 8
  ret void
}

declare i32 @setjmp(ptr) returns_twice

; Where setjmp returns a second time, an interval may have begun. It writes the buffer.
; CHECK-LABEL: define void @twice(
; CHECK: call preserve_allcc void @__cairn_range(ptr %buffer, i64 200)
; CHECK-NEXT: call i32 @setjmp(ptr %buffer)
define void @twice(ptr %p, ptr %buffer) {
  store i64 1, ptr %p, align 8
  %r = call i32 @setjmp(ptr %buffer) returns_twice
  store i64 2, ptr %p, align 8
  ret void
}
