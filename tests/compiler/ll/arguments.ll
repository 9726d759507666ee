; SPDX-License-Identifier: MIT
; What an external function that is not covered is handed by reference is kept before the call, as far
; as its size is known, and where it returns a structure; not what it only reads, and nothing for functions that are known.
; One that is called through a pointer is told of, too.
; RUN: CHECK link=on,report=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare void @unknown(ptr, ptr, ptr)
declare void @returns(ptr)
declare i64 @strlen(ptr) memory(argmem: read)
declare void @pointed_to(ptr)
declare void @reads(ptr readonly)
declare void @takes_none(i64)

; CHECK: cairn: external function may write memory and is not covered: unknown
; CHECK: cairn: external function may write memory and is not covered: returns
; CHECK: cairn: external function may write memory and is not covered: pointed_to
; CHECK-NOT: is not covered
; CHECK: cairn: hands_over: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: takes: 1 writes
; CHECK: cairn: known: 0 writes

; CHECK-LABEL: define void @hands_over(
; CHECK: call {{.*}}@__cairn_range(ptr %self, i64 264)
; CHECK: call void @unknown(
define void @hands_over(ptr %self, ptr %other, ptr %read) {
  call void @unknown(ptr dereferenceable(264) %self, ptr %other, ptr readonly dereferenceable(64) %read)
  ret void
}

; CHECK-LABEL: define void @takes(
; CHECK: call {{.*}}@__cairn_range(ptr %result, i64 400)
; CHECK: call void @returns(
define void @takes(ptr %result) {
  call void @returns(ptr sret([50 x i64]) %result)
  ret void
}

; CHECK-LABEL: define i64 @known(
; CHECK-NOT: cairn.tag
; CHECK: ret i64
define i64 @known(ptr %text) {
  %n = call i64 @strlen(ptr dereferenceable(8) %text)
  ret i64 %n
}

define ptr @chooses(i1 %x, i1 %y) {
  %known = select i1 %y, ptr @strlen, ptr @takes_none
  %unseen = select i1 %y, ptr @pointed_to, ptr @reads
  %any = select i1 %x, ptr %known, ptr %unseen
  ret ptr %any
}
