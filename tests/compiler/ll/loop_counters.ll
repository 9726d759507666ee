; SPDX-License-Identifier: MIT
; A loop that calls something has its place among its thread's loops; one that calls nothing is
; counted in place.
; PASSES: cairn-loops
; RUN: CHECK profile=on
; RUN-TWICE: CHECK profile=on
; RUN: OFF lto=on

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

declare i64 @read(i32, ptr, i64)
declare i32 @fork()
declare void @exit(i32) noreturn
declare void @other()
declare i32 @personality(...)

; OFF-NOT: cairn

; CHECK: @cairn.loops = internal global { ptr, ptr, ptr, i64 } { ptr null, ptr @cairn.loops.idle, ptr @cairn.loops.text, i64 5 }
; CHECK: @cairn.loops.idle = internal global [65 x i64] zeroinitializer
; CHECK: c"loop\09{{.*}}loop_counters.ll\09calls\09global\090\090\090\091\091\09{{[0-9a-f]+}}\0Aloop\09
; CHECK-SAME: quiet\09
; CHECK-SAME: nest\09global\090\090\090\092\091\09
; CHECK-SAME: nest\09global\090\090\091\092\092\09
; CHECK-SAME: fork\09{{.*}}\09main\090\0A
; CHECK: @llvm.global_ctors = {{.*}} @cairn.loops.add

; CHECK-LABEL: define void @calls(
; CHECK: load ptr, ptr getelementptr {{.*}} @cairn.loops, i{{.*}}
; CHECK: call void @__cairn_loop_enter(ptr
; CHECK: top:
; CHECK: icmp ult i64 %{{.*}}, 1024
; CHECK: call void @__cairn_loop_turn()
; CHECK: load ptr, ptr getelementptr
; CHECK: add i64 %{{.*}}, 1
; CHECK: call i64 @__cairn_wait_enter(i32 9)
; CHECK-NEXT: call i64 @read
; CHECK-NEXT: call void @__cairn_wait_leave(i64
; CHECK: call void @__cairn_loop_leave(ptr
; CHECK-NEXT: br label %gone
; CHECK: gone:
; CHECK-NEXT: call void @exit
; CHECK-NEXT: unreachable
; CHECK: call void @__cairn_loop_leave(ptr
; CHECK-NEXT: br label %done
; CHECK: done:
; CHECK-NEXT: ret void
define void @calls(ptr %to) {
  br label %top
top:
  %n = call i64 @read(i32 0, ptr %to, i64 1)
  switch i64 %n, label %top [ i64 0, label %done
                              i64 1, label %done
                              i64 2, label %gone ]
gone:
  call void @exit(i32 1)
  unreachable
done:
  ret void
}

; CHECK-LABEL: define i64 @quiet(
; CHECK-NOT: call
; CHECK: ret i64
define i64 @quiet(i64 %n) {
  br label %top
top:
  %i = phi i64 [ 0, %0 ], [ %next, %top ]
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %top, label %done
done:
  %last = phi i64 [ %next, %top ]
  ret i64 %last
}

; One edge leaves both: the inner one first.
; CHECK-LABEL: define void @nest(
; CHECK: [[INNER:%.*]] = getelementptr i64, ptr %{{.*}}, i64 39
; CHECK: call void @__cairn_loop_leave(ptr [[INNER]])
; CHECK-NEXT: br label %outer
; CHECK: again:
; CHECK: [[LAST:%.*]] = getelementptr i64, ptr %{{.*}}, i64 39
; CHECK-NEXT: call void @__cairn_loop_leave(ptr [[LAST]])
; CHECK: [[OUTER:%.*]] = getelementptr i64, ptr %{{.*}}, i64 26
; CHECK-NEXT: call void @__cairn_loop_leave(ptr [[OUTER]])
; CHECK-NEXT: br label %done
define void @nest(i1 %a, i1 %b) {
  br label %outer
outer:
  br label %inner
inner:
  call void @other()
  br i1 %a, label %inner, label %check
check:
  br i1 %b, label %outer, label %again
again:
  br i1 %a, label %inner, label %done
done:
  ret void
}

; What may throw has returned where its normal way begins.
; CHECK-LABEL: define i64 @throws(
; CHECK: [[BEGAN:%.*]] = call i64 @__cairn_wait_enter(i32 9)
; CHECK-NEXT: invoke i64 @read
; CHECK-NEXT: to label %[[BEHIND:.*]] unwind label %thrown
; CHECK: [[BEHIND]]:
; CHECK-NEXT: call void @__cairn_wait_leave(i64 [[BEGAN]])
; CHECK-NEXT: br label %done
; CHECK: phi i64 [ 0, %0 ], [ %n, %[[BEHIND]] ]
define i64 @throws(i1 %a, ptr %to) personality ptr @personality {
  br i1 %a, label %call, label %done
call:
  %n = invoke i64 @read(i32 0, ptr %to, i64 1) to label %done unwind label %thrown
thrown:
  %pad = landingpad { ptr, i32 } cleanup
  resume { ptr, i32 } %pad
done:
  %got = phi i64 [ 0, %0 ], [ %n, %call ]
  ret i64 %got
}

; CHECK-LABEL: define i32 @main(
; CHECK-NEXT: call void @__cairn_loops_start()
; CHECK: call void @__cairn_fork_enter(ptr
; CHECK-NEXT: call i32 @fork()
; CHECK-NEXT: call void @__cairn_fork_leave()
define i32 @main() {
  %p = call i32 @fork()
  ret i32 %p
}
