; SPDX-License-Identifier: MIT
; Intrinsics that write memory: a run of known length is checked as a store is, one of unknown
; length or of many regions is a call of __cairn_range, before the write and with its length.
; RUN: CHECK link=on,report=on
; RUN: CALLS link=on,segments=off
; RUN: WRAP link=on,wrap=off
; RUN: LOG link=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.masked.scatter.v2i64.v2p0(<2 x i64>, <2 x ptr>, i32, <2 x i1>)
declare ptr @memcpy(ptr, ptr, i64)

; CHECK-LABEL: define void @known(
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: getelementptr i8, ptr %p, i64 19
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call void @llvm.memset
; LOG-LABEL: define void @known(
; LOG: xaddq
; LOG: call void @llvm.memset
define void @known(ptr %p) {
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 20, i1 false)
  ret void
}

; CHECK-LABEL: define void @unknown(
; CHECK: [[LAST:%[0-9]+]] = sub i64 %n, 1
; CHECK: icmp uge i64 [[LAST]], 128
; CHECK: call preserve_allcc void @__cairn_range(ptr %p, i64 %n)
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: getelementptr i8, ptr %p, i64 [[LAST]]
; CHECK: cairn.tag{{[0-9]*}} = 
; CHECK: call void @llvm.memmove
; CALLS-LABEL: define void @unknown(
; CALLS: call preserve_allcc void @__cairn_range(ptr %p, i64 %n)
; CALLS-NEXT: call void @llvm.memmove
; LOG-LABEL: define void @unknown(
; LOG: call preserve_allcc void @__cairn_range(ptr %p, i64 %n)
define void @unknown(ptr %p, ptr %q, i64 %n) {
  call void @llvm.memmove.p0.p0.i64(ptr %p, ptr %q, i64 %n, i1 false)
  ret void
}

; CHECK-LABEL: define void @nothing(
; CHECK-NOT: cairn
; CHECK: ret void
define void @nothing(ptr %p, ptr %q) {
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %q, i64 0, i1 false)
  ret void
}

; CHECK-LABEL: define void @called(
; CHECK: call ptr @__cairn_wrap_memcpy(
; WRAP-LABEL: define void @called(
; WRAP: call ptr @memcpy(
define void @called(ptr %p, ptr %q, i64 %n) {
  %r = call ptr @memcpy(ptr %p, ptr %q, i64 %n)
  ret void
}

; A lane that is masked out is not looked at.
; CHECK-LABEL: define void @lanes(
; CHECK: extractelement <2 x i1> %mask, i64 0
; CHECK: br i1
; CHECK: extractelement <2 x i1> %mask, i64 1
; CHECK: br i1
; CHECK: call void @llvm.masked.scatter
define void @lanes(<2 x i64> %v, <2 x ptr> %to, <2 x i1> %mask) {
  call void @llvm.masked.scatter.v2i64.v2p0(<2 x i64> %v, <2 x ptr> %to, i32 8, <2 x i1> %mask)
  ret void
}
