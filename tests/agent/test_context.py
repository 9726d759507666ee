#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cairn run --context: two alternating kinds of requests that write different pages.

Under `last` each interval is predicted to write what the one before it wrote, which is wrong every
time, unless a context tells the kinds apart. usage: test_context.py CAIRN
"""

import json
import subprocess
import sys

PROGRAM = """
import os, select, socket
theirs, ours = socket.socketpair()
pipes = [os.pipe(), (ours.fileno(), theirs.fileno())]
pages = [bytearray(4096 * 40), bytearray(4096 * 40)]
poll = select.poll()
for pipe in pipes:
    poll.register(pipe[0], select.POLLIN)
for turn in range(300):
    os.write(pipes[turn % 2][1], b"x")
    for fd, _ in poll.poll():
        os.read(fd, 1)
        mine = pages[fd == pipes[1][0]]
        for at in range(0, len(mine), 4096):
            mine[at] = turn & 255
"""


# The same by an epoll set, of which the agent keeps a mirror only where it recovers.
BY_EPOLL = PROGRAM.replace("select.poll()", "select.epoll()").replace("POLLIN", "EPOLLIN")


def run(cairn: str, tracker: str, context: str, program: str = PROGRAM) -> dict:
    command = [cairn, "run", "--at", "wait", "--tracker", tracker, "--strategy", "last",
               "--context", context, "--stats=json", "--", sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return json.loads(result.stderr.strip().splitlines()[-1])


def main() -> int:
    cairn = sys.argv[1]
    failures = 0
    for tracker in ("async", "uffd", "mprotect"):
        figures = {c: run(cairn, tracker, c) for c in ("none", "fd", "events", "reg:rax",
                                                       "word:rsp+8", "site", "result")}
        wrong = {c: f["overcopied"] + f["undercopied"] for c, f in figures.items()}
        print(tracker, wrong, {c: f["contexts"] for c, f in figures.items()})
        # 80 pages an interval are mispredicted without; with it, the interpreter's few.
        failures += wrong["fd"] * 2 > wrong["none"] or wrong["none"] < 300 * 60
        failures += wrong["events"] * 2 > wrong["none"]
        failures += figures["fd"]["contexts"] < 3 or figures["none"]["contexts"] != 1
        failures += any(f["failed"] or f["checkpoints"] < 300 for f in figures.values())
    by_epoll = {c: run(cairn, "async", c, BY_EPOLL) for c in ("none", "fd", "events")}
    wrong = {c: f["overcopied"] + f["undercopied"] for c, f in by_epoll.items()}
    print("by epoll", wrong, {c: f["contexts"] for c, f in by_epoll.items()})
    failures += max(wrong["fd"], wrong["events"]) * 2 > wrong["none"]
    failures += by_epoll["fd"]["contexts"] < 3
    failures += any(f["failed"] or f["checkpoints"] < 300 for f in by_epoll.values())
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
