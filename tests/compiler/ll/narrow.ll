; SPDX-License-Identifier: MIT
; 32-bit programs: what a va_list and a buffer for registers hold is less there, and no byte behind
; it is looked at.
; RUN: CHECK link=on,report=on
; RUN: LOG link=on,report=on,tracker=undolog

target datalayout = "e-m:e-p:32:32-p270:32:32-p271:32:32-p272:64:64-i128:128-f64:32:64-f80:32-n8:16:32-S128"
target triple = "i386-pc-linux-gnu"

declare void @llvm.va_start.p0(ptr)
declare i32 @setjmp(ptr) returns_twice
declare i32 @getcontext(ptr)

; CHECK-LABEL: define void @list(
; CHECK-NOT: getelementptr
; CHECK: call void @llvm.va_start
; LOG-LABEL: define void @list(
; LOG: load i32, ptr %list, align 1
; LOG-NOT: load {{.*}}, ptr %list
; LOG: call void @llvm.va_start
define void @list(ptr %list, ...) {
  call void @llvm.va_start.p0(ptr %list)
  ret void
}

; CHECK-LABEL: define void @registers(
; CHECK: call {{.*}}@__cairn_range(ptr inreg %a, i32 inreg 156)
; CHECK: call i32 @setjmp
; CHECK: call {{.*}}@__cairn_range(ptr inreg %b, i32 inreg 364)
; CHECK: call i32 @getcontext
define void @registers(ptr %a, ptr %b) {
  %r = call i32 @setjmp(ptr %a) returns_twice
  %s = call i32 @getcontext(ptr %b)
  ret void
}
