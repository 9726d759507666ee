; SPDX-License-Identifier: MIT
; A site at the top of the loops that are wanted: the second of two; one that has moved and has its
; shape alone; not one whose shape two have, nor one of another file's function.
; PASSES: cairn-loops
; LOOP: loop sites.c two global 0 0 1 2 1 93a89d6bc2755150
; LOOP: loop sites.c moved global 0 0 5 7 1 93a89d6bc2755150
; LOOP: loop sites.c alike global 0 0 5 7 1 93a89d6bc2755150
; LOOP: loop other.c hidden static 0 0 0 1 1 93a89d6bc2755150
; RUN: CHECK lto=off,report=on
; RUN-TWICE: CHECK lto=off,report=on
; RUN: LTO lto=on
; RUN: LONG lto=off,sites-long=on

source_filename = "sites.c"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare i1 @wait_more()
declare void @other()

; CHECK: cairn: site two (sites.c), loop 2 of 2: 1 places
; CHECK: cairn: site moved (sites.c), loop 6 of 7: 1 places
; CHECK: cairn: warning: no site: not there any more: alike (sites.c), loop 6 of 7
; CHECK-NOT: hidden
; CHECK: ModuleID
; LTO-NOT: warning
; LONG: call void @__cairn_site(ptr @cairn.passed{{.*}}, i32 1, i32 2)
; LTO: @__cairn_loop_of_the_profile = weak_odr constant i8 1

; CHECK-LABEL: define void @two(
; CHECK: first:
; CHECK-NEXT: call i1 @wait_more()
; CHECK: second:
; CHECK-NEXT: call void @__cairn_site(ptr @cairn.passed{{.*}}, i32 1, i32 0)
; CHECK-NEXT: call i1 @wait_more()
define void @two() {
  br label %first
first:
  %a = call i1 @wait_more()
  br i1 %a, label %first, label %second
second:
  %b = call i1 @wait_more()
  br i1 %b, label %second, label %done
done:
  ret void
}

; CHECK-LABEL: define void @moved(
; CHECK: first:
; CHECK-NEXT: call void @other()
; CHECK: second:
; CHECK-NEXT: %i = phi
; CHECK-NEXT: call void @__cairn_site(
define void @moved() {
  br label %first
first:
  call void @other()
  %a = call i1 @wait_more()
  br i1 %a, label %first, label %second
second:
  %i = phi i32 [ 0, %first ], [ %n, %second ]
  %n = add i32 %i, 1
  %b = call i1 @wait_more()
  br i1 %b, label %second, label %done
done:
  ret void
}

; CHECK-LABEL: define void @alike(
; CHECK-NOT: call void @__cairn_site
; CHECK: !cairn.loops.found = !{!
; LTO: !cairn.loops.found = !{!
define void @alike() {
  br label %first
first:
  %a = call i1 @wait_more()
  br i1 %a, label %first, label %second
second:
  %b = call i1 @wait_more()
  br i1 %b, label %second, label %done
done:
  ret void
}

define internal void @hidden() {
  br label %top
top:
  %a = call i1 @wait_more()
  br i1 %a, label %top, label %done
done:
  ret void
}
