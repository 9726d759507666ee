; SPDX-License-Identifier: MIT
; A malloc of the program's own has another name; libraries find the run-time's by the old one, and
; what is given back may be theirs.
; RUN: CHECK link=on
; RUN: LIBC link=on,own=off
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"
@top = global ptr null

; CHECK: @__cairn_wrap_strdup = alias ptr (ptr), ptr @strdup
; LIBC-NOT: __cairn_wrap_

; CHECK-LABEL: define ptr @__cairn_own_malloc(
; CHECK: call preserve_allcc void @__cairn_slow
; LIBC-LABEL: define ptr @malloc(
define ptr @malloc(i64 %size) {
	%p = load ptr, ptr @top
	%next = getelementptr i8, ptr %p, i64 %size
	store ptr %next, ptr @top
	ret ptr %p
}

; CHECK-LABEL: define void @__cairn_own_free(
define void @free(ptr %p) {
	store ptr %p, ptr @top
	ret void
}

; CHECK-LABEL: define ptr @strdup(
; CHECK: call ptr @__cairn_own_malloc(
; CHECK: call void @__cairn_wrap_free(
define ptr @strdup(ptr %s) {
	%p = call ptr @malloc(i64 16)
	call void @free(ptr %p)
	ret ptr %p
}

; CHECK-LABEL: define ptr @malloc(
; CHECK: call ptr @__cairn_given_malloc(
; CHECK-LABEL: define void @free(
; CHECK: call void @__cairn_given_free(
