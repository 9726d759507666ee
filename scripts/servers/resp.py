# SPDX-License-Identifier: MIT
"""
Redis' wire protocol: commands out, replies in. Replies are parsed as they arrive, in any pieces.
"""

from __future__ import annotations

import socket
from typing import Union

Reply = Union[int, bytes, None, "ReplyError", list]


class ReplyError(Exception):
    """An error reply ("-ERR ..."): a value in a reply, raised only by Connection."""


def command(*words: bytes | str | int) -> bytes:
    """One command in the form that redis reads fastest."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if not isinstance(word, bytes):
            word = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Parser:
    """feed() bytes, then next() replies until it says that there is no whole one."""

    INCOMPLETE = object()

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        self._buffer = self._buffer[self._at :] + data
        self._at = 0

    def next(self) -> Reply | object:
        """The next reply, or INCOMPLETE. None is a nil reply."""
        parsed = self._parse(self._at)
        if parsed is None:
            return self.INCOMPLETE
        value, self._at = parsed
        return value

    def _parse(self, at: int) -> tuple[Reply, int] | None:
        end = self._buffer.find(b"\r\n", at)
        if end < 0:
            return None
        kind, rest, after = self._buffer[at], self._buffer[at + 1 : end], end + 2
        if kind == 0x3A:  # :
            return int(rest), after
        if kind == 0x2B:  # +
            return rest, after
        if kind == 0x2D:  # -
            return ReplyError(rest.decode(errors="replace")), after
        count = int(rest)
        if count < 0:
            return None, after  # nil
        if kind == 0x24:  # $
            if len(self._buffer) < after + count + 2:
                return None
            return self._buffer[after : after + count], after + count + 2
        if kind != 0x2A:  # *
            raise ValueError(f"not a reply: {self._buffer[at : at + 40]!r}")
        items: list[Reply] = []
        for _ in range(count):
            parsed = self._parse(after)
            if parsed is None:
                return None
            item, after = parsed
            items.append(item)
        return items, after


class Connection:
    """A plain blocking connection, for setting up and for looking at the end."""

    def __init__(self, port: int, timeout: float = 100.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._parser = Parser()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, *words: bytes | str | int) -> Reply:
        return self.pipeline([words])[0]

    def pipeline(self, commands: list[tuple]) -> list[Reply]:
        """All at once; the replies in order. Raises ReplyError for the first error among them."""
        replies: list[Reply] = []
        for begin in range(0, len(commands), 500):
            batch = commands[begin : begin + 500]
            self._socket.sendall(b"".join(command(*words) for words in batch))
            for _ in batch:
                replies.append(self._read())
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        return replies

    def _read(self) -> Reply:
        while True:
            reply = self._parser.next()
            if reply is not Parser.INCOMPLETE:
                return reply  # type: ignore[return-value]
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._parser.feed(data)
