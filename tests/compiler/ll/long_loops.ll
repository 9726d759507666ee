; SPDX-License-Identifier: MIT
; A loop whose rounds nobody can count has two versions with page mode: the one with hooks counts
; them, and may leave for the other one in each round. What it has made goes over in phis.
; RUN: CHECK link=on,report=on,native-quiet=on,clone=on,hybrid=on
; RUN: OFF link=on,report=on,native-quiet=on
; RUN: LOG link=on,native-quiet=on,clone=on,hybrid=on,tracker=undolog

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@errors = external global i32

declare i32 @cairn_checkpoint(ptr, ptr)
declare ptr @__errno_location()

; CHECK: cairn: main: an interval may be long: a loop without a known bound, in two versions
; CHECK-NOT: counted: an interval
; CHECK: 2 functions in two versions, 1 long loops
; OFF: cairn: main: an interval may be long: a loop without a known bound{{$}}
; OFF-NOT: cairn.out

; CHECK-LABEL: define i64 @main(
; CHECK: loop:
; CHECK-NEXT: %x = phi i64
; CHECK: %cairn.patience = load i64, ptr getelementptr (i{{.*}} @__cairn_rt, i64 {{4|32}})
; CHECK-NEXT: sub i64 %cairn.patience, 1
; CHECK: cairn.out:
; CHECK-NEXT: call preserve_allcc void @__cairn_long()
; CHECK: %cairn.hooked = load i64, ptr getelementptr (i{{.*}} @__cairn_rt, i64 {{3|24}})
; CHECK: br i1 %{{[0-9]+}}, label %cairn.loop.plain, label %cairn.loop
; CHECK: cairn.loop:
; CHECK: cairn.tag{{[0-9]*}} =
; CHECK: store i64 %x, ptr %p
; CHECK: end:
; CHECK-NEXT: phi i64
; CHECK: cairn.loop.plain:
; CHECK-NEXT: phi i64
; CHECK-NOT: cairn.tag
; CHECK: store i64 %{{.*}}, ptr %p
; CHECK: br i1 %more.plain, label %loop.plain, label %end
; LOG-LABEL: define i64 @main(
; LOG: cairn.loop.plain:
; LOG-NOT: xaddq
; LOG: br i1 %more.plain
define i64 @main(ptr %p, i64 %seed) {
  %id = alloca i64
  %r = call i32 @cairn_checkpoint(ptr null, ptr %id)
  br label %loop
loop:
  %x = phi i64 [ %seed, %0 ], [ %y, %loop ]
  store i64 %x, ptr %p, align 8
  %twice = mul i64 %x, %x
  %y = xor i64 %twice, 77
  %more = icmp ugt i64 %y, 5
  br i1 %more, label %loop, label %end
end:
  %sum = add i64 %x, %y
  ret i64 %sum
}

; Stores to variables of libraries have their hooks in both versions.
; CHECK-LABEL: define internal void @counted.plain(
; CHECK: cairn.tag{{[0-9]*}} =
; CHECK: store i32 1, ptr @errors
; CHECK: cairn.tag{{[0-9]*}} =
; CHECK: store i32 2, ptr %e
; CHECK-NOT: cairn.tag
; CHECK: store i64 3, ptr %p
; CHECK: ret void
define void @counted(ptr %p, i64 %n) {
  store i32 1, ptr @errors, align 4
  %e = call ptr @__errno_location()
  store i32 2, ptr %e, align 4
  store i64 3, ptr %p, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %j, %loop ]
  %at = getelementptr i64, ptr %p, i64 %i
  store i64 %i, ptr %at, align 8
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, 1000
  br i1 %more, label %loop, label %end
end:
  ret void
}

; Rounds that are known when a loop without calls begins are asked for once, before it, with those of
; the loop inside.
; CHECK-LABEL: define internal void @known.hooked(
; CHECK: %cairn.patience = load i64
; CHECK: cairn.out:
; CHECK: br i1 %{{[0-9]+}}, label %cairn.loop.plain, label %cairn.loop
; CHECK: outer:
; CHECK-NOT: cairn.patience
; CHECK: cairn.tag{{[0-9]*}} =
; CHECK: store volatile i64
; CHECK: outer.plain:
; CHECK-NOT: cairn.tag
; CHECK: }
define void @known(ptr %p, ptr %places, i64 %n, i64 %m) {
  %some = icmp ne i64 %n, 0
  br i1 %some, label %begin, label %end
begin:
  br label %outer
outer:
  %i = phi i64 [ 0, %begin ], [ %k, %next ]
  %from = getelementptr i64, ptr %places, i64 %i
  br label %loop
loop:
  %j = phi i64 [ 0, %outer ], [ %l, %loop ]
  %place = load i64, ptr %from
  %at = getelementptr i64, ptr %p, i64 %place
  store volatile i64 %j, ptr %at, align 8
  %l = add nuw i64 %j, 1
  %more = icmp ult i64 %l, %m
  br i1 %more, label %loop, label %next
next:
  %k = add nuw i64 %i, 1
  %again = icmp ult i64 %k, %n
  br i1 %again, label %outer, label %end
end:
  ret void
}
