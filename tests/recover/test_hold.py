#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Held output: nobody is told what a restore undoes, and neither the program nor its peers can tell
that bytes were held. One case per function, each with a server of its own; the planted bugs must
make the case fail that is named beside them.

    test_hold.py CAIRN SERVER [--planted CAIRN] [--tracker NAME] [CASE...]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from held_client import PATIENCE, Client, Wrong, expect

ATTEMPTS = 12  # to see a planted bug, each with more time for the race that shows it
EFFECTS = Path(__file__).resolve().parents[2] / "preload" / "effects"


class Server:
    """`stretch`: how many times the usual time together() gives its lines to arrive."""

    def __init__(
        self, command: list[str], environment: dict[str, str], stretch: int = 1
    ) -> None:
        self.stretch = stretch
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        assert self.process.stdout and self.process.stderr
        line = self.process.stdout.readline()
        if not line:
            raise Wrong(f"it did not start: {self.end()}")
        name = line.decode().strip()
        self.port = int(name) if name.isdigit() else name
        self.waiters: list[Client] = []

    def client(self) -> Client:
        return Client(self.port)

    def clients(self, count: int) -> list[Client]:
        """Accepted, known to be served."""
        found = [self.client() for _ in range(count)]
        for c in found:
            expect(c.ask("errors").endswith("0"), "no signal so far")
        return found

    def together(self, *lines: tuple[Client, str], answer: bool = False) -> None:
        """
        All lines are there when the server next looks, in this order, unless we are kept from the
        processor: no case may fail by that. With `answer` it has just answered somebody: the
        checkpoint then lies at the entry of its wait, not at the return.
        """
        self.waiters.append(waiter := self.client())  # its end would be an event too
        waiter.ask("errors")
        pause = f"pause {150 * self.stretch}\n"
        waiter.send(pause + "errors\n" if answer else pause)
        time.sleep(0.05 * self.stretch)
        for client, line in lines:
            client.send(line + "\n")
            time.sleep(0.002)

    def end(self, patience: float = PATIENCE) -> str:
        try:
            return self.process.communicate(timeout=patience)[1].decode()
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[1].decode()


Case = Callable[[Server], None]


# ---- the law


def case_law(server: Server) -> None:
    """Answers of the wake-up that crashes are not seen before they are final: each comes once."""
    a, b, c, d = server.clients(4)
    for number, bad in ((1, c), (3, d)):
        server.together((a, "inc"), (b, "inc"), (bad, "crash"), answer=bad is d)
        expect(bad.is_reset(), "the one who crashed it is reset")
        got = sorted([int(a.line()), int(b.line())])
        expect(got == [number, number + 1], f"both are answered {got}")
        expect(a.quiet() and b.quiet(), f"each is answered once: {a.data!r} {b.data!r}")
    expect(a.ask("inc") == "5", "the next answer is 5")


def case_crowd(server: Server) -> None:
    """Crashes at any instant among many clients: all answers differ, and grow for each."""
    random.seed(7)
    clients, seen = server.clients(12), {}
    last = dict.fromkeys(clients, 0)
    crashes, begin, last_crash = 0, time.monotonic(), 0.0
    while crashes < 20 or time.monotonic() < begin + 3.0:
        waiting = random.sample(clients, random.randint(1, len(clients)))
        # More than 100 in a second would be given up.
        due = time.monotonic() > last_crash + 0.02
        bad = server.client() if due and random.random() < 0.3 else None
        for number, client in enumerate(waiting):
            if bad and number == len(waiting) // 2:
                bad.send("inc\ncrash\n")
            client.send("inc\n")
        if bad:
            crashes, last_crash = crashes + 1, time.monotonic()
        for client in waiting:
            value = int(client.line())
            expect(value not in seen, f"{value} was answered twice")
            expect(value > last[client], f"{value} came after {last[client]}")
            seen[value] = client
            last[client] = value
        if bad:
            expect(bad.is_reset(), "the one who crashed it is reset")
    expect(max(seen) < len(seen) + crashes + 1, "nobody else was counted")


def case_unread(server: Server) -> None:
    """A peer that has sent more than was read is told of the reset, whatever its socket."""
    a, b = server.clients(2)
    a.send("crash\n" + "x" * 1000)
    a.socket.settimeout(PATIENCE)
    try:
        a.socket.recv(100)
        raise Wrong("no reset")
    except ConnectionResetError:
        pass
    expect(b.ask("inc") == "1", "the other one is served")


def case_local_twin(server: Server) -> None:
    """The suspect's socket has two numbers in the server: it is reset all the same."""
    a, b = server.clients(2)
    expect(a.ask("twin") == "ok", "there is another number")
    a.send("crash\n")
    expect(a.is_reset(), "the one who crashed it is reset")
    expect(b.ask("inc") == "1", "the other one is served")
    expect(b.ask("errors").split()[0] != "none", "the server was told")


def case_edge(server: Server) -> None:
    """An edge of the listener that came in the wake-up that crashed is not lost."""
    (a,) = server.clients(1)
    server.together((a, "crash"), answer=True)
    b = server.client()
    expect(a.is_reset(), "the one who crashed it is reset")
    expect(b.ask("inc") == "1", "who connected meanwhile is served")


def case_pipe(server: Server) -> None:
    """What goes another way comes after what was held before it."""
    (a,) = server.clients(1)
    assert server.process.stdout
    for _ in range(100):
        a.socket.setblocking(True)
        a.send("pipe\n")
        expect(server.process.stdout.readline() == b"y\n", "the pipe speaks")
        a.socket.setblocking(False)
        try:
            expect(a.socket.recv(16) == b"x\n", "the socket spoke before")
        except BlockingIOError:
            raise Wrong("the pipe spoke before the socket") from None


# ---- sockets that do not take everything


def case_slow(server: Server) -> None:
    """A reader that takes its time gets every byte, and the others are served meanwhile."""
    wanted = b"".join(b"%07d\n" % number for number in range(2_000_000))
    a, b = server.clients(2)
    a.send("big 2000000\n")
    time.sleep(0.3)
    got = a.bytes(len(wanted))
    if got != wanted:
        at = next(at for at, byte in enumerate(wanted) if got[at] != byte)
        raise Wrong(f"byte {at} of {len(wanted)} begins {got[at : at + 40]!r}")
    expect(b.ask("inc") == "1", "the other one is served")


def case_order(server: Server) -> None:
    """Corked, gathered, from files and pipes, by two numbers and two threads: in this order."""
    a, b = server.clients(2)
    expected = "".join(10 * digit for digit in "123abcdefghij56789")
    expected = expected.replace("".join(10 * c for c in "abcdefghij"), "abcdefghij") + "end"
    for round in range(20):
        server.together((a, "order"), (b, "inc"))
        expect(a.line() == expected and a.quiet(0.01), "all of it, once, in order")
        expect(b.line() == str(round + 1), "the other one is served")
    expect(b.ask("errors").split()[0] == "none", "nothing failed")


def case_late(server: Server) -> None:
    """As `slow`, but where the kernel's patience may end: in order, and whole or reset."""
    try:
        case_slow(server)
    except ConnectionResetError:
        pass


def case_twins(server: Server) -> None:
    """Two numbers of one connection fill one buffer: a peer that reads late gets all of it."""
    a, b = server.clients(2)
    a.send("twins\n")
    time.sleep(1.5)
    expect(b.ask("inc") == "1", "the other one is served")
    got = b""
    while not a.quiet(0.5):
        got, a.data = got + a.data, b""
    a.send("errors\n")  # now there is room for its answer, which comes behind all that was left
    while not re.search(rb"[A-Za-z]+ \d+\n$", got):
        got, a.data = got + a.line().encode() + b"\n", a.data
    got = re.sub(rb"[A-Za-z]+ \d+\n$", b"", got)
    lines = [line for line in got.split(b"\n") if line]
    expect(all(int(line) == n for n, line in enumerate(lines[:-1])), "in order")
    expect(len(lines) > 10_000, f"{len(lines)} lines")
    expect(a.ask("inc") == "2", "and it is served again")


def case_full(server: Server) -> None:
    """A reader that never reads keeps nobody else waiting for ever."""
    a, b = server.clients(2)
    a.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(40):
        a.send("inc\n" * 50)
    a.send("big 60000\n")
    time.sleep(0.1)
    a.socket.close()
    expect(b.ask("inc") != "", "the other one is served")


def case_reset(server: Server) -> None:
    """A peer that resets meanwhile: the next call on the descriptor says so, and nobody dies."""
    a, b = server.clients(2)
    server.together((a, "inc"), (b, "inc"))
    a.reset()
    expect(b.line() in ("1", "2"), "the other one is answered")
    expect(b.ask("inc") == "3", "and again")
    time.sleep(0.05)
    expect(b.ask("errors").split()[0] == "ECONNRESET", "the server was told of the reset")


def case_reset_twice(server: Server) -> None:
    """Bytes for a connection that is gone already raise SIGPIPE as ever."""
    a, b = server.clients(2)
    a.send("inc\npause 100\ninc\ninc\ninc\n")
    a.line()
    a.reset()
    answer = b.ask("errors").split()
    expect(answer[0] in ("EPIPE", "ECONNRESET") and int(answer[1]) < 3, f"{answer}")


def case_stuck(server: Server) -> None:
    """
    The kernel has no room although it was believed to have: the peer that does not read is reset,
    never given bytes out of the middle, and the others wait for a second at most.
    """
    a, b = server.clients(2)
    expect(a.ask("room 200000") == "ok", "the size of its buffer is fixed")
    a.send("big 4000000\n")
    time.sleep(0.1)
    expect(b.ask("inc") == "1", "the other one is served")
    number = 0
    try:
        while True:
            line = a.line()
            expect(int(line) == number, f"line {number} is {line}")
            number += 1
    except ConnectionResetError:
        expect(0 < number < 4_000_000, f"reset after {number} lines")


# ---- processes


def case_threads(server: Server) -> None:
    """Several threads answer: each request once, each with another number."""
    clients, seen = server.clients(16), set()
    for _ in range(200):
        for client in clients:
            client.send("inc\n")
        seen.update(int(client.line()) for client in clients)
    expect(seen == set(range(1, 16 * 200 + 1)), f"{len(seen)} different answers")


def case_fork(server: Server) -> None:
    """A child's bytes come behind its parent's, and nothing comes twice."""
    (a,) = server.clients(1)
    got = [a.ask("fork"), a.line(), a.line()]
    expect(got == ["parent", "child", "done"], f"{got}")
    expect(a.quiet(), "nothing else")


def ends(how: str, status: int) -> Case:
    def case(server: Server) -> None:
        a, b = server.clients(2)
        server.together((b, "inc"), (a, how))
        expect(a.line() == "bye", "the last words arrive")
        expect(b.line() == "1", "the others' answers as well")
        server.end()
        expect(server.process.returncode == status, f"status {server.process.returncode}")

    return case


# ---- what ends a connection, and files


def case_close(server: Server) -> None:
    """Answers and the end of the connection go together: none or both, in this order."""
    a, b, c = server.clients(3)
    for bad in (None, c):
        a = server.clients(1)[0]
        server.together((a, "close"), (b, "inc"), (bad or b, "crash" if bad else "inc"))
        first = a.line()
        expect(a.ended(), "then the end")
        got = [b.line()] if bad else [b.line(), b.line()]
        numbers = [int(n) for n in (first, *got)]
        expect(numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"{numbers}")
        expect(b.quiet(), "nothing twice")
    expect(c.is_reset(), "the one who crashed it is reset")
    expect(b.ask("errors").split()[0] != "EBUSY", "numbers of descriptors are as ever")


def visited(server: Server, visits: int, visit: Callable[[Client], str]) -> list[str]:
    """What is answered to six visitors at once, each with a connection for each visit."""
    answers, troubles = [], []

    def visitor() -> None:
        try:
            for _ in range(visits):
                client = server.client()
                answers.append(visit(client))
                client.socket.close()
        except (OSError, Wrong) as error:
            troubles.append(f"{len(answers)} were answered: {error}")

    visitors = [threading.Thread(target=visitor) for _ in range(6)]
    for thread in visitors:
        thread.start()
    for thread in visitors:
        thread.join()
    expect(not troubles, "; ".join(troubles))
    return answers


def case_leave_threads(server: Server) -> None:
    """While one thread closes its connections, others send what is held: all are answered."""

    def visit(client: Client) -> str:
        answer = client.ask("leave")
        expect(client.ended(), "then the end")
        return answer

    seen = sorted(map(int, visited(server, 400, visit)))
    expect(seen == list(range(1, 6 * 400 + 1)), f"{len(set(seen))} different answers")


def case_self_threads(server: Server) -> None:
    """What others have sent between a look and the next is not missed."""
    seen = set(visited(server, 200, lambda client: client.ask("self")))
    expect(seen == {"ok ok"}, f"{seen}")


def case_close_crash(server: Server) -> None:
    """The crash comes in the wake-up that closed its own connection: that one is the suspect."""
    a, b = server.clients(2)
    server.together((b, "inc"), (a, "close and crash"))
    number = int(b.line())
    expect(b.ask("inc") == str(number + 1) == "2", f"the other one is answered once {number}")
    expect(a.is_reset() or a.ended(), "the one who crashed it is gone")


def case_shutdown(server: Server) -> None:
    a, b = server.clients(2)
    server.together((a, "half"), (b, "shut"))
    expect(sorted([a.line(), b.line()]) == ["1", "2"], "both are answered")
    expect(a.ended() and b.ended(), "then the end")
    c, d = server.clients(2)
    server.together((c, "half"), (d, "crash"), answer=True)
    expect(c.line() == "3" and c.ended(), "once, then the end")
    expect(server.client().ask("errors").split()[0] != "EBUSY", "EPIPE after it")


def case_file(server: Server) -> None:
    """Parts of a file among bytes; the file's offset goes back with a restore."""
    a, b = server.clients(2)
    expect(a.ask("file") == "bcdefg 4 7", "the file is sent")
    server.together((a, "file"), (b, "crash"), answer=True)
    expect(a.line() == "bcdefg 4 7" and a.quiet(), "once")


# ---- time


def prompt(command: str) -> Case:
    def case(server: Server) -> None:
        """
        The answer comes before the end of the computing, which takes some seconds of a processor.
        Who is kept from another one for as long may miss that, but not each time.
        """
        for _ in range(5):
            (a,) = server.clients(1)
            a.send(f"{command} 4000\n")
            expect(a.line() == "s", "it begins")
            if a.quiet(0.001):
                return
        raise Wrong("the answer comes with the end of the computing")

    return case


def case_grind(server: Server) -> None:
    """A crash far behind its request takes that request back, though answers wait for it."""
    for turn in range(3):
        a, b = server.clients(2)
        server.together((a, "inc"), (b, "grind 30"), answer=bool(turn % 2))
        expect(b.is_reset(), "the one who crashed it is reset")
        expect(a.line() == str(turn + 1) and a.quiet(), "the other one is answered once")


def case_block(server: Server) -> None:
    """Answers go out before a read that waits, whoever has made it wait."""
    expect(server.client().ask("helper") == "ok", "there is one to send descriptors to")
    for whose in range(5):
        (a,) = server.clients(1)
        a.send(f"block {whose}\n")
        expect(a.line() == "now", "it begins")
        for _ in range(3):
            expect(a.line() == "next", "it asks")
            a.send("more\n")
        expect(a.line() == "end", "it is done")
        said = a.ask("errors")
        expect(said.startswith("none"), f"nothing went wrong: {whose}, {said}")


def case_self(server: Server) -> None:
    """Two ends of a connection in one process."""
    (a,) = server.clients(1)
    answer = a.ask("self")
    expect(answer == "ok ok", answer)


CASES: dict[str, Case] = {
    "law": case_law,
    "crowd": case_crowd,
    "law_local": case_law,
    "crowd_edge": case_crowd,
    "crowd_local": case_crowd,
    "threads": case_threads,
    "unread": case_unread,
    "unread_local": case_unread,
    "twin": case_local_twin,
    "twin_local": case_local_twin,
    "edge": case_edge,
    "pipe": case_pipe,
    "slow": case_slow,
    "full": case_full,
    "late": case_late,
    "order": case_order,
    "twins": case_twins,
    "reset": case_reset,
    "reset_twice": case_reset_twice,
    "fork": case_fork,
    "exit": ends("exit", 0),
    "abort": ends("abort", -signal.SIGABRT),
    "refused": ends("refused", -signal.SIGSEGV),
    "close": case_close,
    "close_crash": case_close_crash,
    "leave_threads": case_leave_threads,
    "self_threads": case_self_threads,
    "shutdown": case_shutdown,
    "file": case_file,
    "calls": prompt("calls"),
    "burn": prompt("burn"),
    "grind": case_grind,
    "block": case_block,
    "self": case_self,
    "stuck": case_stuck,
}

# How the server serves: listener edge-triggered and exclusive, local sockets, four threads.
MODES = ("edge", "local", "threads")

# The step that is left out: the cases that must notice.
# With an empty send buffer imagined, the bytes that do not fit come later, or not at all; with no
# descriptor to spare a close is no longer held, and comes behind its bytes all the same.
IMAGINED = {"CREDIT": ["late", "stuck"], "DUPLICATE": ["close"]}
PLANTS = {
    "HELD": ["law"],
    "EARLY": ["law", "crowd"],
    "RULES": ["pipe", "order"],
    "SELF": ["self"],
    "MOVE": ["close"],
}


def planted_number(name: str) -> int:
    body = re.search(r"enum crn_plant {(.*?)\n}", (EFFECTS / "planted.h").read_text(), re.S)
    names = re.findall(r"^\tCRN_PLANT_(\w+)", body.group(1), re.M) if body else []
    return 100 + names.index(name)


@contextmanager
def running(
    command: list[str], plant: int | None, arguments: list[str], stretch: int
) -> Iterator[Server]:
    environment = {**os.environ, "CAIRN_PLANT": "" if plant is None else str(plant)}
    server = Server([*command, *arguments], environment, stretch)
    try:
        yield server
    except (OSError, Wrong) as error:
        server.process.kill()
        raise Wrong(f"{error}\n{server.end()}") from error
    finally:
        server.process.kill()
        server.end()


def trouble(command: list[str], name: str, plant: int | None = None, stretch: int = 1) -> str:
    try:
        mode = name.split("_")[-1]
        with running(command, plant, [mode] if mode in MODES else [], stretch) as server:
            CASES[name](server)
    except Wrong as error:
        return str(error)
    return ""


def is_seen(command: list[str], name: str, plant: int) -> bool:
    """Does the case fail with this bug, where it may need several attempts to win the race?"""
    return any(trouble(command, name, plant, 1 << min(n, 5)) for n in range(ATTEMPTS))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cairn")
    parser.add_argument("server")
    parser.add_argument("--planted")
    parser.add_argument("--tracker", default="auto")
    parser.add_argument("--commit", default="hold")
    parser.add_argument("cases", nargs="*")
    a = parser.parse_args()
    options = ["run", "--at", "wait", "--recover", f"--commit={a.commit}", "--tracker", a.tracker]
    bad = 0
    for name in a.cases or [c for c in CASES if c not in IMAGINED["CREDIT"]]:
        wrong = trouble([a.cairn, *options, "--", a.server], name)
        print(f"{'FAIL' if wrong else 'ok  '}  {name}", flush=True)
        for line in wrong.splitlines():
            print(f"      {line}")
        bad += bool(wrong)
    for plant, names in PLANTS.items() if a.planted else ():
        for name in names:
            command = [a.planted, *options, "--", a.server]
            sound = not trouble(command, name)
            caught = is_seen(command, name, planted_number(plant))
            good = sound and caught
            print(f"{'ok  ' if good else 'FAIL'}  planted {plant}: {name}", flush=True)
            if not sound:
                print("      fails without the bug as well")
            bad += not good
    for plant, names in IMAGINED.items() if a.planted else ():
        for name in names:
            wrong = trouble([a.planted, *options, "--", a.server], name, planted_number(plant))
            print(f"{'FAIL' if wrong else 'ok  '}  imagined {plant}: {name} {wrong}", flush=True)
            bad += bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
