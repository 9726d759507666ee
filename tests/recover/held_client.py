# SPDX-License-Identifier: MIT
"""The clients of test_hold.py: connections to held_server, and what they must not see."""

from __future__ import annotations

import functools
import socket
import struct
import subprocess
import sys
import time

PATIENCE = 100.0  # seconds: more than any answer takes on a machine that is busy


class Wrong(Exception):
    """The server, or what stands between it and us, did something that it must not do."""


def expect(good: bool, what: str) -> None:
    if not good:
        raise Wrong(what)


@functools.cache
def can_borrow() -> bool:
    """May one process have another's descriptors? Asked of a child, about us."""
    code = (
        "import ctypes, os, sys; call = ctypes.CDLL(None).syscall;"
        "pid = call(434, os.getppid(), 0); sys.exit(pid < 0 or call(438, pid, 0, 0) < 0)"
    )
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Client:
    def __init__(self, port: int | str) -> None:
        if isinstance(port, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect("\0" + port)
        else:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.data = b""

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def line(self, patience: float = PATIENCE) -> str:
        self.socket.settimeout(patience)
        while b"\n" not in self.data:
            more = self.socket.recv(65536)
            if not more:
                raise Wrong(f"the end came after {self.data!r}")
            self.data += more
        line, self.data = self.data.split(b"\n", 1)
        return line.decode()

    def bytes(self, count: int) -> bytes:
        """So many, with a pause for breath every 64 KiB."""
        self.socket.settimeout(PATIENCE)
        got = bytearray()
        while len(got) < count:
            more = self.socket.recv(min(65536, count - len(got)))
            if not more:
                raise Wrong(f"the end came after {len(got)} bytes")
            got += more
            time.sleep(0.001)
        return bytes(got)

    def ask(self, text: str) -> str:
        self.send(text + "\n")
        return self.line()

    def quiet(self, seconds: float = 0.1) -> bool:
        """Nothing (more) has come."""
        self.socket.settimeout(seconds)
        try:
            self.data += self.socket.recv(4096)
        except TimeoutError:
            pass
        return not self.data

    def is_reset(self) -> bool:
        self.socket.settimeout(PATIENCE)
        try:
            return not self.socket.recv(4096) and not self.can_be_reset()
        except ConnectionResetError:
            return True

    def can_be_reset(self) -> bool:
        """A local socket whose end has read everything only where descriptors can be borrowed."""
        return self.socket.family != socket.AF_UNIX or can_borrow()

    def ended(self) -> bool:
        self.socket.settimeout(PATIENCE)
        return not self.data and not self.socket.recv(4096)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
