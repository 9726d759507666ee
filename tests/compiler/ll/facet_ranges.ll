; SPDX-License-Identifier: MIT
; What std::ctype writes for its callers by a call through a pointer is kept by its inline functions; once,
; and nothing where wrappers are off, or for a function of that name that is not there.
; PASSES: cairn-facets
; RUN: CHECK wrap=on
; RUN-TWICE: CHECK wrap=on
; RUN: OFF wrap=off

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare ptr @_ZNKSt5ctypeIcE7tolowerEPcPKc(ptr, ptr, ptr)

; CHECK-LABEL: define linkonce_odr ptr @_ZNKSt5ctypeIcE7toupperEPcPKc(
; CHECK-DAG: [[TO:%.*]] = ptrtoint ptr %high to i64
; CHECK-DAG: [[FROM:%.*]] = ptrtoint ptr %low to i64
; CHECK: [[BYTES:%.*]] = sub i64 [[TO]], [[FROM]]
; CHECK: call void @__cairn_keep(ptr %low, i64
; CHECK-NOT: @__cairn_keep
; CHECK: tail call ptr %do(
; OFF-NOT: @__cairn_keep
define linkonce_odr ptr @_ZNKSt5ctypeIcE7toupperEPcPKc(ptr %self, ptr %low, ptr %high) {
  %table = load ptr, ptr %self
  %do = load ptr, ptr %table
  %end = tail call ptr %do(ptr %self, ptr %low, ptr %high)
  ret ptr %end
}

; CHECK-LABEL: define linkonce_odr ptr @_ZNKSt21__ctype_abstract_baseIwE5widenEPKcS2_Pw(
; CHECK: [[SIZE:%.*]] = mul i64 {{.*}}, 4
; CHECK: call void @__cairn_keep(ptr %to, i64 [[SIZE]])
define linkonce_odr ptr @_ZNKSt21__ctype_abstract_baseIwE5widenEPKcS2_Pw(ptr %self, ptr %low, ptr %high, ptr %to) {
  %table = load ptr, ptr %self
  %do = load ptr, ptr %table
  %end = tail call ptr %do(ptr %self, ptr %low, ptr %high, ptr %to)
  ret ptr %end
}

; CHECK-LABEL: define ptr @other(
; CHECK-NOT: @__cairn_keep
; CHECK: ret ptr
define ptr @other(ptr %self, ptr %low, ptr %high) {
  %end = call ptr @_ZNKSt5ctypeIcE7tolowerEPcPKc(ptr %self, ptr %low, ptr %high)
  ret ptr %end
}
