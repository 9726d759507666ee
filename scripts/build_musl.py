#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A libc for `cairn-cc -fcairn-complete`: musl, from Debian's source, as bitcode that gets its
hooks at each link like all else of the program.

    build_musl.py [--build DIR] [--compiler NAME]

NAME, cairn-cc by default, is in DIR/bin. It will find the libc in DIR/lib/cairn-musl-VERSION, where
the version is that of its LLVM.

What hooks cannot see is taken out on the way: system calls, births and ends of threads become calls
of the run-time (wrap_musl.c of src/rt), and the clock is asked by system call. Copying and filling
memory stay in assembly, without hooks: the run-time needs them, and whoever calls them has hooks.
Nothing is done if it is there; --again builds it anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from debian_source import ROOT, STORE, BuildError, compiler, fetch

PATIENCE = 1800  # seconds: the machine may be busy
NAMES = "abcdef"

# Without VDSO_CGT_SYM: what the vDSO writes nobody would see.
SYSTEM_CALLS = "\n".join([
    "#define __SYSCALL_LL_E(x) (x)",
    "#define __SYSCALL_LL_O(x) (x)",
    "#define IPC_64 0",
    "long __cairn_syscall(long n, long a, long b, long c, long d, long e, long f);",
    *(
        f"static __inline long __syscall{count}(long n{''.join(f', long {x}' for x in given)})\n"
        f"{{ return __cairn_syscall(n, {', '.join([*given, *'000000'][:6])}); }}"
        for count in range(7)
        for given in [NAMES[:count]]
    ),
    "",
])  # fmt: skip

# Of this file its calls of that name go to the run-time instead.
RENAMED = (
    ("crt/rcrt1.o", "__libc_start_main", "__cairn_start_main"),
    ("src/thread/pthread_create.lo", "__clone", "__cairn_clone"),
    ("src/thread/pthread_create.lo", "__unmapself", "__cairn_unmapself"),
    ("src/thread/pthread_cancel.lo", "__syscall_cp_asm", "__cairn_syscall_cp"),
)


def run(folder: Path, *command: str) -> None:
    log = folder.parent / "musl.log"
    with log.open("a") as to:
        done = subprocess.run(command, cwd=folder, stdout=to, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE)  # fmt: skip
    if done.returncode:
        raise BuildError(f"{' '.join(command)[:60]} failed ({log})")


def build(clang: str, version: str, target: Path) -> None:
    source = fetch("musl")
    folder = STORE / "musl"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, symlinks=True)
    (STORE / "musl.log").write_text("")
    (folder / "arch/x86_64/syscall_arch.h").write_text(SYSTEM_CALLS)
    tools = [f"CC={clang}", f"AR=llvm-ar-{version}", f"RANLIB=llvm-ranlib-{version}"]
    # libc calls what it defines: clang must not put one of its functions for another.
    run(folder, "./configure", f"--prefix={target}", "--disable-shared",
        "CFLAGS=-O2 -flto=full", *tools)  # fmt: skip
    with (folder / "config.mak").open("a") as rules:
        # The first code of a program runs before there are tags.
        rules.write("obj/crt/%.o: CFLAGS_ALL += -fno-lto -fPIC\n")
        for name, old, new in RENAMED:
            rules.write(f"obj/{name}: CFLAGS_ALL += -D{old}={new}\n")
    made = target.with_name(target.name + ".new")
    shutil.rmtree(made, ignore_errors=True)
    run(folder, "make", f"-j{os.cpu_count()}", f"prefix={made}", *tools, "install-libs",
        "install-headers")  # fmt: skip
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)
    shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--compiler", default="cairn-cc")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    tree = args.build.resolve()
    try:
        if not shutil.which("dpkg-source"):
            raise BuildError("dpkg-dev is not installed (scripts/install_deps.sh compiler)")
        clang, version = compiler(tree / "bin" / args.compiler)
        target = tree / "lib" / f"cairn-musl-{version}"
        if args.again or not target.exists():
            build(clang, version, target)
    except BuildError as error:
        print(f"build_musl.py: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
