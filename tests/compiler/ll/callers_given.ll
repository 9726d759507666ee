; SPDX-License-Identifier: MIT
; A library that gives out pointers: code that they lead to may call the program.
; RUN: CHECK link=on,report=on,native-quiet=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@handler = internal global ptr @takes
declare ptr @of_a_library()

declare i32 @cairn_checkpoint(ptr, ptr)

define internal void @takes(ptr %a, ptr %b, i32 %c) {
  %r = call i32 @cairn_checkpoint(ptr %a, ptr %b)
  ret void
}

; CHECK: cairn: by_pointer: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
define internal void @by_pointer(ptr %p, ptr %f) {
  store i64 1, ptr %p, align 8
  call void %f(ptr %p)
  store i64 2, ptr %p, align 8
  ret void
}

define internal ptr @ask() {
  %o = call ptr @of_a_library()
  ret ptr %o
}
