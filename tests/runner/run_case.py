#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run one test program: in a folder of its own, with a time limit, in one of several ways.

Exit status: that of the program (0 pass, 1 fail, 77 skip). A failure keeps the folder and prints
the one command that repeats it. What a program that hangs is doing is printed before it is killed.
CAIRN_TEST_LIMIT_FACTOR in the environment multiplies the time limit.
"""

import argparse
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from process_state import print_process_state

SKIP = 77
OUTPUT_MAX = 20_000
MISMATCH = "oracle: MISMATCH"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--mode", choices=["plain", "pidns", "nobody", "perfmon"],
                        default="plain",
                        help="pidns: in a PID namespace; nobody: as an unprivileged user; perfmon: "
                        "as one who has CAP_PERFMON and may read tracefs")
    parser.add_argument("--expect", choices=["pass", "mismatch"], default="pass",
                        help="mismatch: the program must fail, and the oracle must say why")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.command[:1] == ["--"]:
        args.command = args.command[1:]
    args.timeout *= float(os.environ.get("CAIRN_TEST_LIMIT_FACTOR", "1"))
    if not args.command:
        parser.error("no command")
    return args


def skip(feature: str) -> int:
    print(f"SKIP: {feature}")
    return SKIP


def unprivileged(command: list[str], folder: Path) -> list[str]:
    """Another user may be unable to reach the build folder: run a copy."""
    program = folder / Path(command[0]).name
    shutil.copy(command[0], program)
    program.chmod(0o755)
    user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps=-all", "--", str(program), *command[1:]]


def with_perfmon(command: list[str]) -> list[str]:
    """The same command of an unprivileged user, who may look at the whole host by perf."""
    at = command.index("--inh-caps=-all")
    caps = ["--inh-caps=-all,+perfmon", "--ambient-caps=-all,+perfmon"]
    group = command[command.index("--regid") + 1]
    shell = f"mount -t tracefs -o mode=750,gid={group} tracefs /sys/kernel/tracing || exit 77; "
    shell += 'exec "$@"'
    return ["unshare", "--mount", "sh", "-c", shell, "sh", *command[:at], *caps, *command[at + 1:]]


def descendants(pid: int) -> list[int]:
    """This process and those below it, leaves last. Empty when it is gone."""
    found = [pid] if Path(f"/proc/{pid}").exists() else []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child))
    except OSError:
        pass
    return found


def end_session(pid: int) -> None:
    """Kill what the test left in the session that was made for it, and nothing else."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command: list[str], folder: Path, log: Path, timeout: float) -> int | None:
    with log.open("wb") as out:
        child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        for each in descendants(child.pid):
            print_process_state(each)
        return None
    finally:
        end_session(child.pid)
        child.wait()


def tail(text: str) -> str:
    """The end of a long log, by whole lines."""
    return text if len(text) <= OUTPUT_MAX else text[-OUTPUT_MAX:].partition("\n")[2]


def verdict(args: argparse.Namespace, status: int | None, text: str) -> tuple[int, str]:
    if status is None:
        return 1, f"no end after {args.timeout:.0f} s"
    if status == SKIP:
        return SKIP, ""
    if args.expect == "mismatch":
        if status == 1 and MISMATCH in text:
            return 0, ""
        return 1, f"a planted bug was not caught by the oracle (status {status})"
    if status < 0:
        return 1, f"killed by {signal.Signals(-status).name}"
    return (0, "") if status == 0 else (1, f"exit status {status}")


def main() -> int:
    args = parse_args()
    if args.mode != "plain" and os.geteuid() != 0:
        return skip(f"mode {args.mode} (needs root)")
    folder = Path(tempfile.mkdtemp(prefix=f"cairn-{args.name}-"))
    log = folder / "log"
    command = args.command
    if args.mode == "pidns":
        command = ["unshare", "--fork", "--pid", "--kill-child", "--", *command]
    elif args.mode in ("nobody", "perfmon"):
        command = unprivileged(command, folder)
        if args.mode == "perfmon":
            command = with_perfmon(command)
    status = run(command, folder, log, args.timeout)
    text = log.read_text(errors="replace")
    if args.mode == "pidns" and text.startswith("unshare: unshare failed"):
        status = skip("PID namespaces (unshare is refused)")
    elif args.mode == "perfmon" and text.startswith(("unshare: ", "mount: ", "setpriv: ")):
        status = skip("tracefs, or CAP_PERFMON for another user")
    code, why = verdict(args, status, text)
    print(tail(text), end="")
    if code == 1:
        print(f"FAILED {args.name}: {why}")
        print(f"kept: {folder}")
        print(f"repeat with: {shlex.join([sys.executable, *sys.argv])}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
