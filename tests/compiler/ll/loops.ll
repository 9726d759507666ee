; SPDX-License-Identifier: MIT
; Stores of a loop a constant distance apart are one range before it; those that are made under a
; condition, or of whose number of rounds nothing is known, or in a loop that may take a checkpoint
; or be left by a call, are not.
; RUN: CHECK link=on,report=on,native-quiet=on
; RUN: OFF link=on,report=on,native-quiet=on,loops=off
; RUN: LOG link=on,report=on,native-quiet=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare i32 @cairn_checkpoint(ptr, ptr)
declare void @other()

; CHECK: cairn: up: 1 writes, 0 stack, 0 fresh, 1 loops
; CHECK: cairn: down: 1 writes, 0 stack, 0 fresh, 1 loops
; CHECK: cairn: fields: 2 writes, 0 stack, 0 fresh, 2 loops
; CHECK: cairn: head: 1 writes, 0 stack, 0 fresh, 1 loops
; CHECK: cairn: far: 1 writes, 0 stack, 0 fresh, 0 loops
; CHECK: cairn: short: 1 writes, 0 stack, 0 fresh, 0 loops
; CHECK: cairn: sometimes: 1 writes, 0 stack, 0 fresh, 0 loops
; CHECK: cairn: until: 1 writes, 0 stack, 0 fresh, 0 loops
; CHECK: cairn: left: 1 writes, 0 stack, 0 fresh, 0 loops
; CHECK: cairn: taken: 1 writes, 0 stack, 0 fresh, 0 loops
; OFF: cairn: up: 1 writes, 0 stack, 0 fresh, 0 loops
; LOG: cairn: up: 1 writes, 0 stack, 0 fresh, 1 loops
; LOG: cairn: fields: 2 writes, 0 stack, 0 fresh, 2 loops

; CHECK-LABEL: define void @up(
; CHECK: %cairn.length = add i64
; CHECK: call preserve_allcc void @__cairn_range(ptr %p, i64 %cairn.length)
; CHECK: loop:
; CHECK-NOT: cairn
; CHECK: ret void
; OFF-LABEL: define void @up(
; OFF: loop:
; OFF: cairn.tag = 
; LOG-LABEL: define void @up(
; LOG: call preserve_allcc void @__cairn_range(ptr %p, i64 %cairn.length)
; LOG: loop:
; LOG-NOT: cairn
; LOG: ret void
define void @up(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 1, ptr %q, align 8
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, %n
  br i1 %c, label %loop, label %end
end:
  ret void
}

; CHECK-LABEL: define void @down(
; CHECK: %cairn.low = getelementptr i8
; CHECK: call preserve_allcc void @__cairn_range(ptr %cairn.low, i64 %cairn.length)
define void @down(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ %n, %0 ], [ %next, %loop ]
  %next = add nsw i64 %i, -1
  %q = getelementptr i64, ptr %p, i64 %next
  store i64 1, ptr %q, align 8
  %c = icmp ne i64 %next, 0
  br i1 %c, label %loop, label %end
end:
  ret void
}

; Two fields of 16 bytes: one range.
; CHECK-LABEL: define void @fields(
; CHECK: call preserve_allcc void @__cairn_range(
; CHECK-NOT: call preserve_allcc void @__cairn_range(
; CHECK: ret void
define void @fields(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %at = mul nuw nsw i64 %i, 16
  %b = getelementptr i8, ptr %p, i64 %at
  %a = getelementptr i8, ptr %b, i64 8
  store i64 1, ptr %a, align 8
  store i64 2, ptr %b, align 8
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, %n
  br i1 %c, label %loop, label %end
end:
  ret void
}

; The loop is left before its store: as often as it goes back, which may be never.
; CHECK-LABEL: define void @head(
; CHECK: select i1 %{{[0-9]+}}, i64 0, i64 %cairn.length
; CHECK: call preserve_allcc void @__cairn_range(
define void @head(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %body ]
  %c = icmp ult i64 %i, %n
  br i1 %c, label %body, label %end
body:
  %q = getelementptr i8, ptr %p, i64 %i
  store i8 1, ptr %q, align 1
  %next = add nuw nsw i64 %i, 1
  br label %loop
end:
  ret void
}

define void @far(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %q = getelementptr [8192 x i8], ptr %p, i64 %i
  store i64 1, ptr %q, align 8
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, %n
  br i1 %c, label %loop, label %end
end:
  ret void
}

define void @short(ptr %p) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 1, ptr %q, align 8
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, 3
  br i1 %c, label %loop, label %end
end:
  ret void
}

define void @sometimes(ptr %p, i64 %n, ptr %which) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %latch ]
  %w = getelementptr i8, ptr %which, i64 %i
  %v = load i1, ptr %w
  br i1 %v, label %then, label %latch
then:
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 1, ptr %q, align 8
  br label %latch
latch:
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, %n
  br i1 %c, label %loop, label %end
end:
  ret void
}

define void @until(ptr %p, ptr %from) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %w = getelementptr i8, ptr %from, i64 %i
  %v = load i8, ptr %w
  %q = getelementptr i8, ptr %p, i64 %i
  store i8 %v, ptr %q, align 1
  %next = add nuw nsw i64 %i, 1
  %c = icmp ne i8 %v, 0
  br i1 %c, label %loop, label %end
end:
  ret void
}

define void @left(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 1, ptr %q, align 8
  call void @other()
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, %n
  br i1 %c, label %loop, label %end
end:
  ret void
}

define void @taken(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 1, ptr %q, align 8
  %r = call i32 @cairn_checkpoint(ptr null, ptr null) nounwind willreturn
  %next = add nuw nsw i64 %i, 1
  %c = icmp ult i64 %next, %n
  br i1 %c, label %loop, label %end
end:
  ret void
}
