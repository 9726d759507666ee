# SPDX-License-Identifier: MIT
"""
Requests that a web server must answer alike, bare and under Cairn: every byte except the date.
"""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
from pathlib import Path

SIZES = (0, 1, 100, 4096, 70_000, 3_000_000)

REQUESTS: list[bytes] = [
    *(b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % size for size in SIZES),
    b"HEAD /4096 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /4096 HTTP/1.0\r\n\r\n",
    b"GET /70000 HTTP/1.1\r\nHost: x\r\nRange: bytes=1000-1999\r\nConnection: close\r\n\r\n",
    b"GET /missing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"POST /100 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    b"nonsense\r\n\r\n",
    # Three requests on one connection, the last one cut in two by the sender below.
    b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /100 HTTP/1.1\r\nHost: x\r\n\r\n"
    b"GET /4096 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
]


def write_files(www: Path) -> None:
    www.mkdir()
    www.chmod(0o755)
    chance = random.Random(7)
    for size in SIZES:
        (www / str(size)).write_bytes(chance.randbytes(size))
        # Apache marks the ETag of a file that is seconds old as weak.
        os.utime(www / str(size), (1_000_000_000, 1_000_000_000))


def answer(port: int, request: bytes) -> bytes:
    """All that comes back, in two pieces sent, with the date blanked."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as s:
        cut = len(request) * 2 // 3
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(request[:cut])
        s.sendall(request[cut:])
        received = bytearray()
        while data := s.recv(1 << 16):
            received += data
    return re.sub(rb"\r\nDate: [^\r]*", b"\r\nDate: ", bytes(received))


def answers(port: int) -> list[bytes]:
    return [answer(port, request) for request in REQUESTS]


def apache_bench(
    port: int, path: str, requests: int, keep_alive: bool, connections: int = 20
) -> float:
    """Requests per second; raises if one failed."""
    command = ["ab", "-q", "-n", str(requests), "-c", str(connections), "-s", "100"]
    command += ["-k"] if keep_alive else []
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, timeout=250
    )
    figures = dict(re.findall(r"^([A-Za-z0-9 -]+):\s+([0-9.]+)", done.stdout, re.MULTILINE))
    complete, failed = figures.get("Complete requests"), figures.get("Failed requests")
    if done.returncode or complete != str(requests) or failed != "0" or "Non-2xx" in done.stdout:
        raise RuntimeError(f"ab: {done.stdout}\n{done.stderr}")
    return float(figures["Requests per second"])
