# SPDX-License-Identifier: MIT
"""
Load that knows what it was told. Some dozens of connections write to Redis, each in keys of its
own and in keys that all share, and remember every acknowledgement; audit() then compares what is
there with what was acknowledged.

What one connection (number i) does, in a random order that its seed fixes:

    SET u:i:n VALUE    a key of its own each time           -> +OK; there at the end, exactly
    SET w:i:k VALUE    over an older value                  -> +OK; the last one is there
    GET w:i:k          reads its own last write             -> that value
    INCR c:i           a counter of its own                 -> exactly one more than before
    RPUSH l:i n        a list of its own                    -> its length; 0, 1, 2, ... at the end
    RPUSH q:i n, LPOP q:i   a queue                         -> first in, first out, each once
    INCR shared:c      everybody's counter                  -> each number to one connection only
    RPUSH shared:l i:n everybody's list                     -> each once, in order per connection

A number too low is a lost write, one too high a duplicated one, a wrong neighbour a reordered
one. A connection that breaks is counted (nobody here has sent anything harmful) and replaced by a
new one with a new number; what it had sent without an answer may or may not have been done.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from audit import Audit, Findings, audit
from resp import Connection, Parser, ReplyError, command

OVERWRITTEN_KEYS = 16


class Writer:
    """One connection and everything that it was told."""

    def __init__(self, index: int, depth: int, port: int, seed: int, findings: Findings) -> None:
        self.index = index
        self.depth = depth  # requests on their way at a time
        self.findings = findings
        self.random = random.Random(seed * 100003 + index)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=100)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = Parser()
        self.unsent = b""
        self.waiting: deque[Callable[[object], None]] = deque()
        self.broken = False
        self.acknowledged = 0  # writes
        self.answered = 0
        self.number = 0  # makes each value unique
        # What was acknowledged, and what was sent at most.
        self.unique: dict[str, bytes] = {}
        self.overwritten: dict[str, bytes] = {}
        self.overwrites: dict[str, int] = {}  # acknowledged, by key
        self.overwritten_sent: dict[str, list[bytes]] = {}  # since the last acknowledged
        self.counter = self.counter_sent = 0
        self.list = self.list_sent = 0
        self.pushed = self.pushed_sent = self.popped = self.popped_sent = 0
        self.shared_numbers: list[int] = []
        self.shared_counter_sent = 0
        self.shared_items = self.shared_items_sent = 0

    # ---- Requests: each returns the bytes and leaves what to do with the reply in `waiting`.

    def _value(self) -> bytes:
        self.number += 1
        return b"%d:%d:" % (self.index, self.number) + b"x" * self.random.randrange(8, 120)

    def _expect(self, request: bytes, on_reply: Callable[[object], None]) -> bytes:
        self.waiting.append(on_reply)
        return request

    def _set_unique(self) -> bytes:
        value = self._value()
        key = f"u:{self.index}:{self.number}"

        def on_reply(reply: object) -> None:
            if self._same(key, reply, b"OK"):
                self.unique[key] = value
                self.acknowledged += 1

        return self._expect(command("SET", key, value), on_reply)

    def _set_again(self) -> bytes:
        value = self._value()
        key = f"w:{self.index}:{self.random.randrange(OVERWRITTEN_KEYS)}"
        sent = self.overwritten_sent.setdefault(key, [])
        sent.append(value)

        def on_reply(reply: object) -> None:
            del sent[0]
            if self._same(key, reply, b"OK"):
                self.overwritten[key] = value
                self.overwrites[key] = self.overwrites.get(key, 0) + 1
                self.acknowledged += 1

        return self._expect(command("SET", key, value), on_reply)

    def _get(self) -> bytes:
        key = f"w:{self.index}:{self.random.randrange(OVERWRITTEN_KEYS)}"
        sent = self.overwritten_sent.get(key)
        value = sent[-1] if sent else self.overwritten.get(key)

        def on_reply(reply: object) -> None:
            self._same(key, reply, value)

        return self._expect(command("GET", key), on_reply)

    def _incr(self) -> bytes:
        self.counter_sent += 1
        expected = self.counter_sent

        def on_reply(reply: object) -> None:
            self._number(f"INCR c:{self.index}", reply, expected)
            self.counter += 1
            self.acknowledged += 1

        return self._expect(command("INCR", f"c:{self.index}"), on_reply)

    def _push(self) -> bytes:
        item = self.list_sent
        self.list_sent += 1

        def on_reply(reply: object) -> None:
            self._number(f"RPUSH l:{self.index}", reply, item + 1)
            self.list += 1
            self.acknowledged += 1

        return self._expect(command("RPUSH", f"l:{self.index}", item), on_reply)

    def _queue_push(self) -> bytes:
        item = self.pushed_sent
        expected = item + 1 - self.popped_sent
        self.pushed_sent += 1

        def on_reply(reply: object) -> None:
            self._number(f"RPUSH q:{self.index}", reply, expected)
            self.pushed += 1
            self.acknowledged += 1

        return self._expect(command("RPUSH", f"q:{self.index}", item), on_reply)

    def _queue_pop(self) -> bytes:
        if self.popped_sent == self.pushed_sent:
            return self._queue_push()
        item = self.popped_sent
        self.popped_sent += 1

        def on_reply(reply: object) -> None:
            self._same(f"LPOP q:{self.index}", reply, b"%d" % item, kind="reordered")
            self.popped += 1
            self.acknowledged += 1

        return self._expect(command("LPOP", f"q:{self.index}"), on_reply)

    def _shared_incr(self) -> bytes:
        self.shared_counter_sent += 1

        def on_reply(reply: object) -> None:
            if not isinstance(reply, int):
                self.findings.add("error", f"INCR shared:c said {reply!r}")
                return
            if self.shared_numbers and reply <= self.shared_numbers[-1]:
                self.findings.add("lost", f"shared:c fell to {reply}")
            self.shared_numbers.append(reply)
            self.acknowledged += 1

        return self._expect(command("INCR", "shared:c"), on_reply)

    def _shared_push(self) -> bytes:
        item = self.shared_items_sent
        self.shared_items_sent += 1

        def on_reply(reply: object) -> None:
            if not isinstance(reply, int):
                self.findings.add("error", f"RPUSH shared:l said {reply!r}")
                return
            self.shared_items += 1
            self.acknowledged += 1

        return self._expect(command("RPUSH", "shared:l", f"{self.index}:{item}"), on_reply)

    # ---- Replies

    def _number(self, what: str, reply: object, expected: int) -> None:
        if reply == expected:
            return
        if isinstance(reply, int):
            kind = "lost" if reply < expected else "duplicated"
            self.findings.add(kind, f"{what} said {reply}, not {expected}", abs(expected - reply))
        else:
            self.findings.add("error", f"{what} said {reply!r}")

    def _same(self, what: str, reply: object, expected: object, kind: str = "lost") -> bool:
        if reply == expected:
            return True
        if isinstance(reply, ReplyError):
            kind = "error"
        self.findings.add(kind, f"{what} said {str(reply)[:40]!r}, not {str(expected)[:40]!r}")
        return False

    # ---- Input and output

    def fill(self) -> None:
        """Send until `depth` requests are on their way."""
        requests = (
            self._set_unique,
            self._set_again,
            self._get,
            self._incr,
            self._push,
            self._queue_push,
            self._queue_pop,
            self._shared_incr,
            self._shared_push,
        )
        while len(self.waiting) < self.depth:
            self.unsent += self.random.choice(requests)()
        self.flush()

    def flush(self) -> None:
        try:
            while self.unsent:
                sent = self.socket.send(self.unsent)
                self.unsent = self.unsent[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True

    def receive(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.broken = True
            return
        self.parser.feed(data)
        while (reply := self.parser.next()) is not Parser.INCOMPLETE:
            if not self.waiting:
                self.findings.add("duplicated", f"connection {self.index}: answer to nothing")
                return
            self.answered += 1
            self.waiting.popleft()(reply)


class Verifier:
    """The writers and the loop that drives them. One thread; step() returns after `seconds`."""

    def __init__(self, port: int, connections: int = 60, seed: int = 1) -> None:
        self.port = port
        self.seed = seed
        self.findings = Findings()
        self.connections_reset = 0
        self.writers: list[Writer] = []  # all there ever were
        self._poll = select.epoll()
        self._by_fd: dict[int, Writer] = {}
        for _ in range(connections):
            self._add()

    def _add(self) -> None:
        index = len(self.writers)
        depth = 8 if index % 5 == 4 else 1  # one in five sends ahead of its answers
        writer = Writer(index, depth, self.port, self.seed, self.findings)
        self.writers.append(writer)
        self._by_fd[writer.socket.fileno()] = writer
        self._poll.register(writer.socket.fileno(), select.EPOLLIN)

    def _drop(self, writer: Writer, count_it: bool = True) -> None:
        self._poll.unregister(writer.socket.fileno())
        del self._by_fd[writer.socket.fileno()]
        writer.socket.close()
        if count_it:
            self.connections_reset += 1

    def step(self, seconds: float, sending: bool = True) -> None:
        """Keep the load going that long. Raises ConnectionError if the server stays away."""
        end = time.monotonic() + seconds
        if sending:
            for writer in self._by_fd.values():
                writer.fill()
        while (left := end - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(min(left, 0.05)):
                writer = self._by_fd[fd]
                writer.receive()
                if sending and not writer.broken:
                    writer.fill()
            for writer in [w for w in self._by_fd.values() if w.broken or w.unsent]:
                writer.flush()
                if writer.broken:
                    self._replace(writer)
            if not sending and not any(w.waiting for w in self._by_fd.values()):
                return

    def _replace(self, writer: Writer) -> None:
        self._drop(writer)
        for _ in range(100):
            try:
                self._add()
                return
            except OSError:
                time.sleep(0.05)
        raise ConnectionError("the server is gone")

    @property
    def acknowledged(self) -> int:
        return sum(w.acknowledged for w in self.writers)

    @property
    def answered(self) -> int:
        return sum(w.answered for w in self.writers)

    def finish(self, patience: float = 100.0) -> None:
        """Send nothing more and wait for the answers that are due."""
        self.step(patience, sending=False)
        for writer in list(self._by_fd.values()):
            if writer.waiting:
                self.findings.add("unanswered", f"connection {writer.index}", len(writer.waiting))
            self._drop(writer, count_it=False)
        self._poll.close()

    def audit(self) -> Audit:
        """Compare with what the server holds. After finish()."""
        with Connection(self.port, timeout=60) as connection:
            present = audit(connection, self.writers, self.findings)
        return Audit(self.acknowledged, present, self.findings)
