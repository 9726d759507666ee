; SPDX-License-Identifier: MIT
; A store that is aligned to its size lies in one region, so one look does. Others may lie in two, and so
; do all if alignments are not to be relied on. The undo log does not ask.
; RUN: CHECK link=on,report=on
; RUN: OFF link=on,report=on,aligned=off
; RUN: LOG link=on,report=on,tracker=undolog
; RUN: LOGOFF link=on,report=on,tracker=undolog,aligned=off

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

; CHECK: cairn: aligned: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: packed: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: byte: 1 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; OFF: cairn: aligned: 1 writes, {{.*}}, 2 checks
; OFF: cairn: packed: 1 writes, {{.*}}, 2 checks
; OFF: cairn: byte: 1 writes, {{.*}}, 1 checks
; LOG: cairn: aligned: 1 writes, {{.*}}, 1 checks
; LOG: cairn: packed: 1 writes, {{.*}}, 1 checks
; LOGOFF: cairn: aligned: 1 writes, {{.*}}, 1 checks
; LOGOFF: cairn: packed: 1 writes, {{.*}}, 1 checks

define void @aligned(ptr %p) {
  store i64 1, ptr %p, align 8
  ret void
}

define void @packed(ptr %p) {
  store i64 1, ptr %p, align 2
  ret void
}

define void @byte(ptr %p) {
  store i8 1, ptr %p, align 1
  ret void
}
