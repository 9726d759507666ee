; SPDX-License-Identifier: MIT
; A function that can reach a checkpoint has both versions of its blocks. It goes on in the one that is
; right where it begins, behind each call that may change that, and where computed jumps lead. Values that
; live across such a place are joined there. A call that may unwind has two such places behind it. Assembly
; that defines a symbol is not copied: one version then.
; RUN: CHECK link=on,report=on,native-quiet=on,clone=on
; RUN: OFF link=on,report=on,native-quiet=on
; RUN: HYBRID link=on,report=on,native-quiet=on,clone=on,hybrid=on
; RUN: LOG link=on,report=on,native-quiet=on,clone=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@table = internal constant [2 x ptr] [ptr blockaddress(@jumps, %one), ptr blockaddress(@jumps, %two)]

declare i32 @cairn_checkpoint(ptr, ptr)
declare i32 @personality(...)

; CHECK: cairn: across: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: jumps: 2 writes, 0 stack, 0 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: unwinds: 2 writes
; CHECK: 4 functions in two versions
; OFF: 0 functions in two versions
; HYBRID: 0 functions in two versions
; LOG: 4 functions in two versions

; CHECK-LABEL: define i64 @across(
; CHECK: %variable = alloca i64
; CHECK: %cairn.hooked = load i64
; CHECK: br i1 %{{[0-9]+}}, label %cairn.on.plain, label %cairn.on
; CHECK: cairn.on:
; CHECK: cairn.tag
; CHECK: store i64 %v, ptr %p
; CHECK: %twice = add i64 %v, %v
; CHECK: call i32 @cairn_checkpoint
; CHECK: %cairn.hooked{{[0-9]+}} = load i64
; CHECK: phi i64 [ %twice{{[.a-z0-9]*}}, %{{.*}} ], [ %twice{{[.a-z0-9]*}}, %{{.*}} ]
; CHECK: cairn.tag
; CHECK: cairn.on.plain:
; CHECK-NOT: cairn.tag
; CHECK: store i64 %v, ptr %p
; CHECK: call i32 @cairn_checkpoint
; CHECK: %cairn.hooked{{[0-9]+}} = load i64
; CHECK-NOT: cairn.tag
; CHECK: ret i64
; CHECK: }
define i64 @across(ptr %p, i64 %v) {
  %variable = alloca i64
  store i64 %v, ptr %p, align 8
  %twice = add i64 %v, %v
  %r = call i32 @cairn_checkpoint(ptr null, ptr %variable)
  store i64 %twice, ptr %p, align 8
  ret i64 %twice
}

; CHECK-LABEL: define i64 @jumps(
; CHECK: one:
; CHECK: %sum = phi i64
; CHECK: load i64, ptr getelementptr
; CHECK: br i1
; CHECK: two:
; CHECK: load i64, ptr getelementptr
; CHECK: br i1
define i64 @jumps(ptr %p, i64 %v) {
entry:
  br label %again
again:
  %n = phi i64 [ 0, %entry ], [ %sum, %one ]
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  store i64 %n, ptr %p, align 8
  %slot = getelementptr [2 x ptr], ptr @table, i64 0, i64 %v
  %to = load ptr, ptr %slot
  %more = add i64 %n, 3
  indirectbr ptr %to, [ label %one, label %two ]
one:
  %sum = phi i64 [ %more, %again ]
  store i64 %sum, ptr %p, align 8
  br label %again
two:
  ret i64 %more
}

; CHECK-LABEL: define void @names(
; CHECK: call void asm sideeffect ".L${:uid}: 1: nop; here:
; CHECK-NOT: call void asm
; CHECK: ret void
define void @names(ptr %p) {
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  call void asm sideeffect ".L${:uid}: 1: nop; here: nop", ""()
  ret void
}

; CHECK-LABEL: define void @numbers(
; CHECK: call void asm sideeffect "1:
; CHECK: call void asm sideeffect "1:
; CHECK: ret void
define void @numbers(ptr %p) {
  %r = call i32 @cairn_checkpoint(ptr null, ptr null)
  call void asm sideeffect "1: mov %fs:0, %rax; .L${:uid}: jmp 1b", ""()
  ret void
}

; CHECK-LABEL: define void @unwinds(
; CHECK: fine:
; CHECK: %cairn.hooked{{[0-9]+}} = load i64
; CHECK: caught:
; CHECK-NEXT: landingpad
; CHECK-NEXT: cleanup
; CHECK-NEXT: %cairn.hooked{{[0-9]+}} = load i64
; CHECK: caught.plain:
; CHECK-NEXT: landingpad
; CHECK-NEXT: cleanup
; CHECK-NEXT: %cairn.hooked{{[0-9]+}} = load i64
; CHECK: }
define void @unwinds(ptr %p) personality ptr @personality {
  %r = invoke i32 @cairn_checkpoint(ptr null, ptr null) to label %fine unwind label %caught
fine:
  store i64 1, ptr %p, align 8
  ret void
caught:
  %l = landingpad { ptr, i32 } cleanup
  store i64 2, ptr %p, align 8
  resume { ptr, i32 } %l
}
