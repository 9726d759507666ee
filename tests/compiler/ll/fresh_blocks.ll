; SPDX-License-Identifier: MIT
; Blocks of the run-time's heap: who got one asks once whether it is new, and whether it is the one that
; was given out last. Stores inside of it need no hooks then: several fields of a block whose size is
; known, if that is cheaper; for the undo log all stores, up to the next checkpoint. Not in 32-bit code,
; nor with the guard.
; RUN: CHECK link=on,report=on,native-quiet=on,fresh=on
; RUN: OFF link=on,report=on,native-quiet=on
; RUN: LOG link=on,report=on,native-quiet=on,fresh=on,tracker=undolog
; RUN: GUARD link=on,report=on,native-quiet=on,fresh=on,guard=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare noalias ptr @malloc(i64) allocsize(0)
declare void @free(ptr)
declare i32 @cairn_checkpoint(ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; CHECK: cairn: fields: 3 writes, 0 stack, 3 fresh, 0 loops, 0 aggregated, 0 redundant, 1 checks
; CHECK: cairn: few: 2 writes, 0 stack, 0 fresh, 0 loops, 1 aggregated, 0 redundant, 1 checks
; CHECK: cairn: outside: 3 writes, 0 stack, 0 fresh
; CHECK: cairn: unknown: 3 writes, 0 stack, 0 fresh
; CHECK: cairn: later: 4 writes, 0 stack, 3 fresh, 0 loops, 0 aggregated, 0 redundant, 2 checks
; CHECK: cairn: anywhere: 2 writes, 0 stack, 0 fresh
; CHECK: cairn: older: 3 writes, 0 stack, 0 fresh
; OFF: cairn: fields: 3 writes, 0 stack, 0 fresh
; GUARD: cairn: fields: 3 writes, 0 stack, 0 fresh
; LOG: cairn: fields: 3 writes, 0 stack, 3 fresh
; LOG: cairn: few: 2 writes, 0 stack, 2 fresh
; LOG: cairn: outside: 3 writes, 0 stack, 3 fresh
; LOG: cairn: unknown: 3 writes, 0 stack, 3 fresh
; LOG: cairn: later: 4 writes, 0 stack, 3 fresh
; LOG: cairn: anywhere: 2 writes, 0 stack, 2 fresh
; LOG: cairn: older: 3 writes, 0 stack, 0 fresh

; CHECK-LABEL: define void @fields(
; CHECK: call noalias ptr @__cairn_wrap_malloc(i64 24)
; CHECK: %cairn.fresh = load i64
; CHECK: icmp ne ptr %m, null
; CHECK: icmp ult i64 {{.*}}, 24
; CHECK: cairn.tag =
; CHECK: cairn.tag
; CHECK: store i64 1
; CHECK-NOT: cairn.tag
; CHECK: ret void
define void @fields(i1 %c) {
  %m = call noalias ptr @malloc(i64 24)
  store i64 1, ptr %m, align 8
  br i1 %c, label %then, label %end
then:
  %q = getelementptr i8, ptr %m, i64 8
  store i64 2, ptr %q, align 8
  call void @free(ptr null)
  %r = getelementptr i8, ptr %m, i64 16
  store i64 3, ptr %r, align 8
  br label %end
end:
  ret void
}

; One check does for both.
; CHECK-LABEL: define void @few(
; CHECK-NOT: cairn.fresh
; CHECK: ret void
define void @few() {
  %m = call noalias ptr @malloc(i64 16)
  store i64 1, ptr %m, align 16
  %q = getelementptr i8, ptr %m, i64 8
  store i64 2, ptr %q, align 8
  ret void
}

; Beyond the block there may be no memory to look at, or it is another's. The log asks at each.
; LOG-LABEL: define void @fields(
; LOG: icmp ult i64 {{.*}}, 24
; LOG: xaddq
; LOG: store i64 1, ptr %m
; LOG-NOT: xaddq
; LOG: ret void
; LOG-LABEL: define void @outside(
; LOG: %cairn.fresh = load i64
; LOG: icmp uge i64
; LOG: xaddq
; LOG: ret void
define void @outside(i1 %c) {
  %m = call noalias ptr @malloc(i64 24)
  %p = getelementptr i8, ptr %m, i64 24
  store i64 1, ptr %p, align 8
  br i1 %c, label %then, label %end
then:
  %q = getelementptr i8, ptr %m, i64 800
  store i64 2, ptr %q, align 8
  call void @free(ptr null)
  %r = getelementptr i8, ptr %m, i64 1600
  store i64 3, ptr %r, align 8
  br label %end
end:
  ret void
}

define void @unknown(i64 %n, i1 %c) {
  %m = call noalias ptr @malloc(i64 %n)
  store i64 1, ptr %m, align 8
  br i1 %c, label %then, label %end
then:
  %q = getelementptr i8, ptr %m, i64 800
  store i64 2, ptr %q, align 8
  call void @free(ptr null)
  %r = getelementptr i8, ptr %m, i64 1600
  store i64 3, ptr %r, align 8
  br label %end
end:
  ret void
}

; CHECK-LABEL: define void @later(
; CHECK: call i32 @cairn_checkpoint
; CHECK: cairn.tag =
; CHECK: ret void
define void @later(i1 %c) {
  %m = call noalias ptr @malloc(i64 24)
  store i64 1, ptr %m, align 8
  br i1 %c, label %then, label %end
then:
  %q = getelementptr i8, ptr %m, i64 8
  store i64 2, ptr %q, align 8
  call void @free(ptr null)
  %r = getelementptr i8, ptr %m, i64 16
  store i64 3, ptr %r, align 8
  br label %end
end:
  %x = call i32 @cairn_checkpoint(ptr null, ptr null)
  store i64 4, ptr %m, align 8
  ret void
}

define void @anywhere(i64 %n, i64 %at) {
  %m = call noalias ptr @malloc(i64 %n)
  %p = getelementptr i8, ptr %m, i64 %at
  store i8 1, ptr %p, align 1
  call void @llvm.memset.p0.i64(ptr %m, i8 0, i64 %n, i1 false)
  ret void
}

; The block may be one that was allocated before.
define void @older(ptr %m) {
  store i64 1, ptr %m, align 8
  call void @free(ptr null)
  %q = getelementptr i8, ptr %m, i64 8
  store i64 2, ptr %q, align 8
  call void @free(ptr null)
  %r = getelementptr i8, ptr %m, i64 16
  store i64 3, ptr %r, align 8
  ret void
}
