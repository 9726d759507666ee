; SPDX-License-Identifier: MIT
; Regions of one byte: tags are looked at as words, at a constant distance; what is longer than 32
; bytes, or of unknown length, is a call.
; RUN: CHECK region=1
; RUN: EPOCH region=1,tags=epoch

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; CHECK: @__cairn_abi_shadow_1 = external
; CHECK-LABEL: define void @word(
; CHECK: %[[A:.*]] = ptrtoint ptr %p to i64
; CHECK: sub i64 %[[A]], 13194139533312
; CHECK: load i64, ptr %{{.*}}, align 1
; CHECK: icmp ne i64 %{{.*}}, 72340172838076673
; CHECK: call preserve_allcc void @__cairn_range(ptr %p, i64 8)
; CHECK: store i64 1
; EPOCH-LABEL: define void @word(
; EPOCH: load i8, ptr getelementptr
; EPOCH: mul i64 %{{.*}}, 72340172838076673
define void @word(ptr %p) {
  store i64 1, ptr %p, align 1
  ret void
}

; CHECK-LABEL: define void @odd(
; CHECK: load i64, ptr %{{.*}}, align 1
; CHECK: load i32, ptr %{{.*}}, align 1
; CHECK: load i8, ptr %{{.*}}, align 1
; CHECK: call preserve_allcc void @__cairn_range(ptr %p, i64 13)
define void @odd(ptr %p) {
  call void @llvm.memset.p0.i64(ptr %p, i8 1, i64 13, i1 false)
  ret void
}

; CHECK-LABEL: define void @long(
; CHECK-NEXT: call preserve_allcc void @__cairn_range(ptr %p, i64 40)
; CHECK-NEXT: call void @llvm.memset
; CHECK-NEXT: call preserve_allcc void @__cairn_range(ptr %q, i64 %n)
define void @long(ptr %p, ptr %q, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 1, i64 40, i1 false)
  call void @llvm.memset.p0.i64(ptr %q, i8 1, i64 %n, i1 false)
  ret void
}
