; SPDX-License-Identifier: MIT
; Stores off one base, of one block or of blocks that always run together, become one check, on the
; first and the last byte if the run may cross a region. A call that may not return ends the group,
; and so does a loop that may not end.
; RUN: CHECK link=on,report=on
; RUN: OFF link=on,report=on,aggregate=off
; RUN: LOG link=on,report=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare void @use(ptr)

; CHECK: cairn: fields: 4 writes, 0 stack, 0 fresh, 0 loops, 3 aggregated, 0 redundant, 2 checks
; CHECK: cairn: cut: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: far: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: aligned: 2 writes, 0 stack, 0 fresh, 0 loops, 1 aggregated, 0 redundant, 1 checks
; CHECK: cairn: chain: 3 writes, 0 stack, 0 fresh, 0 loops, 2 aggregated, 0 redundant, 2 checks
; CHECK: cairn: by_chance: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK: cairn: call_between: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK: cairn: loop_between: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK: cairn: in_loop: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; OFF: cairn: fields: 4 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 4 checks
; The log has no regions: entries of eight bytes are what counts, and these four are as many.
; LOG: cairn: fields: 4 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 4 checks
; LOG: cairn: halves: 2 writes, 0 stack, 0 fresh, 0 loops, 1 aggregated, 0 redundant, 1 checks

; CHECK-LABEL: define void @fields(
; CHECK: ptrtoint ptr %p to i64
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: getelementptr i8, ptr %p, i64 31
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: store i64 1
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: ret void
define void @fields(ptr %p) {
  store i64 1, ptr %p, align 8
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  %c = getelementptr i8, ptr %p, i64 16
  store i64 3, ptr %c, align 8
  %d = getelementptr i8, ptr %p, i64 24
  store i64 4, ptr %d, align 8
  ret void
}

; CHECK-LABEL: define void @cut(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call void @use
; CHECK: cairn.tag{{[0-9]*}} = 
define void @cut(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @use(ptr %p)
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  ret void
}

; Further apart than a region.
define void @far(ptr %p) {
  store i64 1, ptr %p, align 8
  %b = getelementptr i8, ptr %p, i64 128
  store i64 2, ptr %b, align 8
  ret void
}

; 16 bytes that are aligned to 16 lie in one region.
; CHECK-LABEL: define void @aligned(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK: ret void
define void @aligned(ptr %p) {
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  store i64 1, ptr %p, align 16
  ret void
}

; The hook is before the first of the chain, whichever way is taken to the second.
; CHECK-LABEL: define void @chain(
; CHECK: ptrtoint ptr %p to i64
; CHECK: cairn.tag{{[0-9]*}} =
; CHECK: getelementptr i8, ptr %p, i64 23
; CHECK: cairn.tag{{[0-9]*}} =
; CHECK: store i64 1
; CHECK-NOT: cairn.tag{{[0-9]*}} =
; CHECK: ret void
define void @chain(ptr %p, i1 %c) {
  store i64 1, ptr %p, align 8
  br i1 %c, label %left, label %join
left:
  br label %join
join:
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  br label %last
last:
  %d = getelementptr i8, ptr %p, i64 16
  store i64 3, ptr %d, align 8
  ret void
}

; What is not reached each time may not even be mapped.
define void @by_chance(ptr %p, i1 %c) {
  store i64 1, ptr %p, align 8
  br i1 %c, label %left, label %join
left:
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  %d = getelementptr i8, ptr %p, i64 16
  store i64 3, ptr %d, align 8
  br label %join
join:
  ret void
}

define void @call_between(ptr %p, i1 %c) {
  store i64 1, ptr %p, align 8
  br i1 %c, label %left, label %join
left:
  call void @use(ptr %p)
  br label %join
join:
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  %d = getelementptr i8, ptr %p, i64 16
  store i64 3, ptr %d, align 8
  ret void
}

define void @loop_between(ptr %p, ptr %q) {
  store i64 1, ptr %p, align 8
  br label %wait
wait:
  %c = load volatile i1, ptr %q
  br i1 %c, label %wait, label %join
join:
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  %d = getelementptr i8, ptr %p, i64 16
  store i64 3, ptr %d, align 8
  ret void
}

; Each round may be in another interval.
define void @in_loop(ptr %p, ptr %q) {
  store i64 1, ptr %p, align 8
  br label %round
round:
  %b = getelementptr i8, ptr %p, i64 8
  store i64 2, ptr %b, align 8
  %d = getelementptr i8, ptr %p, i64 16
  store i64 3, ptr %d, align 8
  call void @use(ptr %p)
  %c = load volatile i1, ptr %q
  br i1 %c, label %round, label %done
done:
  ret void
}

define void @halves(ptr %p, i1 %c) {
  store i32 1, ptr %p, align 4
  br i1 %c, label %left, label %join
left:
  br label %join
join:
  %b = getelementptr i8, ptr %p, i64 4
  store i32 2, ptr %b, align 4
  ret void
}
