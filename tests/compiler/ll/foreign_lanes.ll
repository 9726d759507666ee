; SPDX-License-Identifier: MIT
; In page mode, stores of lanes to a library's variable keep their hooks, like other stores to it; those
; to the program's have none.
; RUN: CHECK link=on,clone=on,hybrid=on,native-quiet=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@theirs = external global [64 x i32]
@ours = internal global [64 x i32] zeroinitializer

declare void @llvm.x86.avx2.maskstore.d(ptr, <4 x i32>, <4 x i32>)
declare void @llvm.x86.avx512.mask.scattersiv4.si(ptr, <4 x i1>, <4 x i32>, <4 x i32>, i32)

; CHECK-LABEL: define internal void @own.plain(
; CHECK-NOT: cairn.tag
; CHECK: ret void
define void @own(<4 x i32> %v, <4 x i32> %mask) {
  call void @llvm.x86.avx2.maskstore.d(ptr @ours, <4 x i32> %mask, <4 x i32> %v)
  ret void
}

; CHECK-LABEL: define internal void @masked.plain(
; CHECK: cairn.tag
; CHECK: call void @llvm.x86.avx2.maskstore.d(
; CHECK: ret void
define void @masked(<4 x i32> %v, <4 x i32> %mask) {
  call void @llvm.x86.avx2.maskstore.d(ptr @theirs, <4 x i32> %mask, <4 x i32> %v)
  ret void
}

; CHECK-LABEL: define internal void @scattered.plain(
; CHECK: cairn.tag
; CHECK: call void @llvm.x86.avx512.mask.scattersiv4.si(
; CHECK: ret void
define void @scattered(<4 x i32> %v, <4 x i32> %index, <4 x i1> %mask) {
  call void @llvm.x86.avx512.mask.scattersiv4.si(ptr @theirs, <4 x i1> %mask, <4 x i32> %index, <4 x i32> %v, i32 4)
  ret void
}
