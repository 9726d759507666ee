; SPDX-License-Identifier: MIT
; Code that may turn to another stack, which takes a checkpoint: unknown functions, swapcontext,
; assembly that changes the stack pointer or jumps. libc's other functions do not. Here only main
; takes one, to which no pointer and no unknown function leads.
; RUN: CHECK link=on,report=on,native-quiet=on,libc-abilist=../../../compiler/libc.abilist
; RUN: CHECK link=on,report=on,native-quiet=on,libc-abilist=../../../compiler/libc.abilist,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare i32 @cairn_checkpoint(ptr, ptr)
declare void @switch_to(ptr)
declare i32 @swapcontext(ptr, ptr)
declare i32 @epoll_create(i32)
declare void @_ZNSt8ios_base4InitC1Ev(ptr)

; CHECK: cairn: unknown: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: context: 3 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 3 checks
; CHECK: cairn: assembly: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: caller: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: system_call: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks
; CHECK: cairn: libc: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 1 redundant, 1 checks

define i32 @main(ptr %a, ptr %b) {
  %r = call i32 @cairn_checkpoint(ptr %a, ptr %b)
  ret i32 %r
}

define internal void @unknown(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @switch_to(ptr null)
  store i64 2, ptr %p, align 8
  ret void
}

; CHECK-LABEL: define internal void @context(
; CHECK: call void @__cairn_to_context(ptr %to)
; CHECK: call i32 @swapcontext(ptr %from, ptr %to)
define internal void @context(ptr %p, ptr %from, ptr %to) {
  store i64 1, ptr %p, align 8
  %r = call i32 @swapcontext(ptr %from, ptr %to)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @assembly(ptr %p) {
  store i64 1, ptr %p, align 8
  call void asm sideeffect "xchg %rsp, ($0)", "r,~{memory}"(ptr %p)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @caller(ptr %p) {
  store i64 1, ptr %p, align 8
  call void @assembly(ptr null)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @system_call(ptr %p) {
  store i64 1, ptr %p, align 8
  %r = call i64 asm sideeffect "syscall", "={ax},{ax},~{rcx},~{r11},~{memory}"(i64 39)
  store i64 2, ptr %p, align 8
  ret void
}

define internal void @libc(ptr %p) {
  store i64 1, ptr %p, align 8
  %r = call i32 @epoll_create(i32 1)
  call void @_ZNSt8ios_base4InitC1Ev(ptr null)
  store i64 2, ptr %p, align 8
  ret void
}
