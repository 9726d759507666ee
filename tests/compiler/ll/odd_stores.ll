; SPDX-License-Identifier: MIT
; Writes that are no store: what libatomic, va_start and __builtin_setjmp write, and lanes that only
; an intrinsic of x86 stores. Nothing of them is reported.
; RUN: CHECK link=on,report=on
; RUN: LOG link=on,report=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare void @__atomic_load(i64, ptr, ptr, i32)
declare void @__atomic_store(i64, ptr, ptr, i32)
declare void @__atomic_exchange(i64, ptr, ptr, ptr, i32)
declare i1 @__atomic_compare_exchange(i64, ptr, ptr, ptr, i32, i32)
declare i32 @llvm.eh.sjlj.setjmp(ptr)
declare void @llvm.x86.avx512.mask.scatter.qps.512(ptr, <8 x i1>, <8 x i64>, <8 x float>, i32)
declare void @llvm.x86.avx512.mask.pmov.qw.mem.128(ptr, <2 x i64>, i8)

; CHECK-NOT: intrinsic that writes memory

; CHECK-LABEL: define void @atomics(
; CHECK: call {{.*}}@__cairn_range(ptr %into, i64 200)
; CHECK: call void @__atomic_load(
; CHECK: call {{.*}}@__cairn_range(ptr %p, i64 %n)
; CHECK: call void @__atomic_store(
; CHECK-DAG: call {{.*}}@__cairn_range(ptr %p, i64 200)
; CHECK-DAG: call {{.*}}@__cairn_range(ptr %into, i64 200)
; CHECK: call void @__atomic_exchange(
; CHECK: call i1 @__atomic_compare_exchange(
; LOG-LABEL: define void @atomics(
; LOG: call {{.*}}@__cairn_range(ptr %p, i64 %n)
; LOG: call void @__atomic_store(
define void @atomics(ptr %p, ptr %from, ptr %into, i64 %n) {
  call void @__atomic_load(i64 200, ptr %p, ptr %into, i32 5)
  call void @__atomic_store(i64 %n, ptr %p, ptr %from, i32 5)
  call void @outside()
  call void @__atomic_exchange(i64 200, ptr %p, ptr %from, ptr %into, i32 5)
  call void @outside()
  %r = call i1 @__atomic_compare_exchange(i64 200, ptr %p, ptr %into, ptr %from, i32 5, i32 5)
  ret void
}

declare void @outside()

; CHECK-LABEL: define i32 @jump(
; CHECK: getelementptr i8, ptr %p, i64 39
; CHECK: cairn.tag
; CHECK: call i32 @llvm.eh.sjlj.setjmp
define i32 @jump(ptr %p) {
  %r = call i32 @llvm.eh.sjlj.setjmp(ptr %p)
  ret i32 %r
}

; CHECK-LABEL: define void @scattered(
; CHECK: mul <8 x i64> {{%[0-9]+}}, {{(splat \(i64 4\)|<(i64 4(, )?)+>)}}
; CHECK: getelementptr i8, ptr %p, <8 x i64> {{%[0-9]+}}
; CHECK: extractelement <8 x ptr> {{%[0-9]+}}, i64 0
; CHECK: cairn.tag
; CHECK: extractelement <8 x ptr> {{%[0-9]+}}, i64 7
; CHECK: cairn.tag
; CHECK: call void @llvm.x86.avx512.mask.scatter
define void @scattered(ptr %p, <8 x i1> %mask, <8 x i64> %index, <8 x float> %v) {
  call void @llvm.x86.avx512.mask.scatter.qps.512(ptr %p, <8 x i1> %mask, <8 x i64> %index, <8 x float> %v, i32 4)
  ret void
}

; Two lanes of two bytes.
; CHECK-LABEL: define void @narrowed(
; CHECK: bitcast i8 %mask to <8 x i1>
; CHECK: extractelement <2 x i1> {{.*}}, i64 0
; CHECK: extractelement <2 x i1> {{.*}}, i64 1
; CHECK: getelementptr i8, ptr %p, i64 2
; CHECK-NOT: extractelement
; CHECK: call void @llvm.x86.avx512.mask.pmov
define void @narrowed(ptr %p, <2 x i64> %v, i8 %mask) {
  call void @llvm.x86.avx512.mask.pmov.qw.mem.128(ptr %p, <2 x i64> %v, i8 %mask)
  ret void
}
