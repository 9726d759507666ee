; SPDX-License-Identifier: MIT
; A module that has its hooks gets no others, and says so in a flag that links keep. Some functions
; get none: resolvers of indirect functions, and those that say so.
; RUN: CHECK link=on
; RUN-TWICE: CHECK link=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

; CHECK: @__cairn_abi_shadow_128 = external constant i8
; CHECK-LABEL: define void @plain(
; CHECK-COUNT-1: %cairn.tag = load i8
; CHECK: call preserve_allcc void @__cairn_slow(ptr %p)
; CHECK-NOT: cairn.tag{{[0-9]*}} = 
; CHECK-LABEL: define void @left(
define void @plain(ptr %p) {
  store i64 1, ptr %p, align 8
  ret void
}

; CHECK-NOT: cairn.tag{{[0-9]*}} = 
define void @left(ptr %p) disable_sanitizer_instrumentation {
  store i64 1, ptr %p, align 8
  ret void
}

@word = internal global i64 0
@chosen = ifunc void (ptr), ptr @resolve

define internal ptr @resolve() {
  store i64 1, ptr @word, align 8
  ret ptr @plain
}
; CHECK: !"cairn.instrumented", i32 1}
