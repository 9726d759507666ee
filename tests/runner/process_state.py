# SPDX-License-Identifier: MIT
"""What a process that hangs is doing: signals, timers and stacks of each of its threads."""

import shutil
import subprocess
from pathlib import Path

OF_STATUS = ("Name", "State", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")


def words_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        return str(error.strerror)


def print_process_state(pid: int) -> None:
    """By /proc, and by gdb where there is one. The process goes on."""
    print(f"--- process {pid}", flush=True)
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        lines = words_of(task / "status").splitlines()
        print(task.name, *(" ".join(s.split()) for s in lines if s.split(":")[0] in OF_STATUS))
        print("  call", words_of(task / "syscall"), "in", words_of(task / "wchan"))
        print("  " + words_of(task / "stack").replace("\n", "\n  "))
    print(words_of(Path(f"/proc/{pid}/timers")) or "no POSIX timers", flush=True)
    if not shutil.which("gdb"):
        return
    try:
        subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set pagination off",
                        "-ex", "thread apply all bt 24"],
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20,
                       check=False)
    except subprocess.TimeoutExpired:
        print("gdb: no answer")
