; SPDX-License-Identifier: MIT
; Two versions of each function that cannot reach what opens a session or begins an interval; the
; others keep their hooks and call the switch, like calls through pointers.
; RUN: CHECK link=on,report=on,native-quiet=on,clone=on
; RUN: OFF link=on,native-quiet=on
; RUN: UNIT clone=on
; RUN: LOG link=on,report=on,native-quiet=on,clone=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@table = internal global ptr @writes

declare i32 @cairn_open(ptr, ptr)
declare ptr @strcpy(ptr, ptr)

; CHECK: 4 functions in two versions
; LOG: 4 functions in two versions
; LOG: define {{.*}}void @writes.hooked(
; LOG: xaddq
; OFF-NOT: .plain
; UNIT-NOT: .plain

; CHECK-LABEL: define void @writes(
; CHECK: load i64, ptr getelementptr (i{{.*}} @__cairn_rt, i64 {{3|24}})
; CHECK: br i1 %{{[0-9]+}}, label %plain, label %hooked
; CHECK: hooked:
; CHECK: musttail call void @writes.hooked(ptr %{{.*}}, i64 %{{.*}})
; CHECK-NEXT: ret void
; CHECK: plain:
; CHECK: musttail call void @writes.plain(
; CHECK-NEXT: ret void
define void @writes(ptr %p, i64 %v) {
  store i64 %v, ptr %p, align 8
  ret void
}

; There can be one place of that name.
; CHECK-LABEL: define void @names(
; CHECK-NEXT: call void asm
define void @names(ptr %p) {
  call void asm sideeffect "here: nop", ""()
  store i64 1, ptr %p, align 8
  ret void
}

; CHECK-LABEL: define i32 @calls(
; CHECK: musttail call i32 (ptr, ...) @calls.hooked(
define i32 @calls(ptr %p, ...) {
  call void @writes(ptr %p, i64 1)
  %f = load ptr, ptr @table
  call void %f(ptr %p, i64 2)
  %q = call ptr @strcpy(ptr %p, ptr %f)
  ret i32 1
}

define void @recursive(ptr %p, i64 %n) {
  %c = icmp eq i64 %n, 0
  br i1 %c, label %end, label %again
again:
  %less = sub i64 %n, 1
  call void @recursive(ptr %p, i64 %less)
  br label %end
end:
  ret void
}

; CHECK-LABEL: define i64 @reads(
; CHECK-NEXT: load i64
define i64 @reads(ptr %p) {
  %v = load i64, ptr %p
  ret i64 %v
}

; CHECK-LABEL: define i32 @main(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call void @writes(ptr %p
define i32 @main(ptr %p) {
  store i64 1, ptr %p, align 8
  %r = call i32 @cairn_open(ptr null, ptr null)
  call void @writes(ptr %p, i64 1)
  ret i32 0
}

; CHECK-LABEL: define internal void @writes.plain(
; CHECK-NOT: cairn
; CHECK: ret void
; CHECK-LABEL: define internal i32 @calls.plain(
; CHECK: call void @writes.plain(
; CHECK: call void %f(
; CHECK: call ptr @__cairn_wrap_strcpy(
; CHECK-LABEL: define internal void @recursive.plain(
; CHECK: call void @recursive.plain(
; CHECK-LABEL: define internal void @writes.hooked(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK-LABEL: define internal i32 @calls.hooked(
; CHECK: call void @writes.hooked(
; CHECK: call ptr @__cairn_wrap_strcpy(
; CHECK-LABEL: define internal void @recursive.hooked(
; CHECK: call void @recursive.hooked(
