; SPDX-License-Identifier: MIT
; A call through a pointer may be to code of a library, which calls what the program has given to it,
; with more arguments: if one of its functions, or of its variables, can have led to that code, or if
; the pointer can be to libc's function. A leaf that is not libc's may call other units.
; RUN: CHECK link=on,report=on,native-quiet=on,libc-abilist=../../../compiler/libc.abilist
; RUN: UNIT report=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@handler = internal global ptr @takes
@walk = internal global ptr @twalk

declare i32 @cairn_checkpoint(ptr, ptr)
declare void @twalk(ptr, ptr)
declare void @of_a_library() nocallback
declare i32 @__gxx_personality_v0(...)

define internal void @takes(ptr %a, ptr %b, i32 %c) {
  %r = call i32 @cairn_checkpoint(ptr %a, ptr %b)
  ret void
}

; CHECK: cairn: as_twalk: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: too_few: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; UNIT: cairn: leaf: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
define internal void @as_twalk(ptr %p, ptr %f) {
  store i64 1, ptr %p, align 8
  call void %f(ptr %p, ptr %p)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @too_few(ptr %p, ptr %f) personality ptr @__gxx_personality_v0 {
  store i64 1, ptr %p, align 8
  call void %f(ptr %p)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @leaf(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @of_a_library()
  store i64 2, ptr %p, align 8
  ret void
}
