; SPDX-License-Identifier: MIT
; Facets of C++'s locales are called through pointers: a program that has the id of one that writes for its
; callers is told of it, by name; not of others, and not of an id that nobody uses.
; RUN: CHECK link=on,report=on,abilist=../../../compiler/libc.abilist

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@_ZNSt7codecvtIwc11__mbstate_tE2idE = external global i64
@_ZNSt7__cxx118time_getIcSt19istreambuf_iteratorIcSt11char_traitsIcEEE2idE = external global i64
@_ZNSt5ctypeIcE2idE = external global i64
@_ZNSt9money_getIcSt19istreambuf_iteratorIcSt11char_traitsIcEEE2idE = external global i64

declare ptr @find(ptr) memory(read)

; CHECK-NOT: covered: _ZNSt5ctype
; CHECK: cairn: facet of locales may write memory and is not covered: _ZNSt7codecvtIwc11__mbstate_tE2idE
; CHECK: cairn: facet of locales may write memory and is not covered: _ZNSt7__cxx118time_getIc
; CHECK-NOT: facet of locales
; CHECK-LABEL: define ptr @finds(
define ptr @finds(i1 %which) {
  %narrow = call ptr @find(ptr @_ZNSt5ctypeIcE2idE)
  %wide = call ptr @find(ptr @_ZNSt7codecvtIwc11__mbstate_tE2idE)
  %date = call ptr @find(ptr @_ZNSt7__cxx118time_getIcSt19istreambuf_iteratorIcSt11char_traitsIcEEE2idE)
  %either = select i1 %which, ptr %wide, ptr %date
  ret ptr %either
}
