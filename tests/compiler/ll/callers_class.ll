; SPDX-License-Identifier: MIT
; The table of a class of a library: its functions may call what the program overrides.
; RUN: CHECK link=on,report=on,native-quiet=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@handler = internal global ptr @takes
@_ZTV5Other = external unnamed_addr constant { [4 x ptr] }

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

define internal void @construct(ptr %this) {
  store ptr getelementptr inbounds (i8, ptr @_ZTV5Other, i64 16), ptr %this, align 8
  ret void
}
