# SPDX-License-Identifier: MIT
"""
The servers that lmc_programs.py builds, each with its load: ab with 10 connections and 10 requests
on each, redis-benchmark with 50 clients, pgbench with 10, dnsperf with 20, and 10 FTP clients that
fetch a file of 1 KiB again and again and compare it. (pyftpdlib's ftpbench moves files of megabytes
both ways: that measures copies to and from sockets, and compares nothing.)
"""

from __future__ import annotations

import ftplib
import os
import pwd
import re
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from debian_source import STORE
from heavy_servers import ApacheServer, BindServer, PostgresServer
from loads import PER_CONNECTION, PROGRAMS, Needing, ab_load
from servers import FileServer, LighttpdServer, NginxServer, RedisServer, Server, ServerError
from throughput import requests_per_second

FTP_CLIENTS = 10
FTP_BYTES = 1024


class BuiltNginx(NginxServer):
    """Without the module that `return` is from, which needs a library."""

    CONFIGURATION = re.sub(r"\n *location .*return.*", "", NginxServer.CONFIGURATION)


class BuiltLighttpd(LighttpdServer):
    """From its source: none of the modules that it would load by default are there."""

    def prepare(self) -> None:
        super().prepare()
        with (self.folder / "lighttpd.conf").open("a") as f:
            f.write('server.compat-module-load = "disable"\nserver.modules = ("mod_staticfile")\n')


class BuiltApache(ApacheServer):
    """All of its modules are in the program."""

    MODULE_NAMES = ()


class BuiltRedis(RedisServer):
    """With libc's malloc, which has no threads of its own."""

    def arguments(self) -> list[str]:
        words = super().arguments()
        at = words.index("--jemalloc-bg-thread")
        return [*words[:at], *words[at + 2 :]]


class BuiltPostgres(PostgresServer):
    def command(self) -> list[str]:
        return [*self.under, self.program, *self.arguments()]

    def initdb(self) -> str:
        return str(STORE / "postgres" / "installed" / "programs" / "initdb")


class ProftpdServer(FileServer):
    """A process for each connection; one user, whose home is the folder of files."""

    CONFIGURATION = """
ServerType standalone
ServerName cairn
DefaultAddress 127.0.0.1
Port {port}
UseIPv6 off
User {user}
Group {group}
UseReverseDNS off
WtmpLog off
TransferLog none
MaxInstances 100
PidFile {folder}/proftpd.pid
ScoreboardFile {folder}/scoreboard
DelayEngine off
AuthOrder mod_auth_file.c
AuthUserFile {folder}/passwords
RequireValidShell off
TimeoutIdle 0
"""
    USER, PASSWORD = "anonymous", "cairn"  # the name by which ftpd lets everybody in
    # crypt(3) of the password
    HASH = (
        "$6$cairn$IA9N2hb.hk20ot1lpc.BIkhUZJSsDvfL5LV2qmyTe.dD7OAZFw/SOYy3z.I9mThHIRoV9Y8EgR0hHvpNB"
        "l5Oq."
    )
    stop_signal = signal.SIGTERM

    def prepare(self) -> None:
        who = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        group = "nogroup" if os.geteuid() == 0 else str(who.pw_gid)
        text = self.CONFIGURATION.format(
            folder=self.folder, port=self.port, user=who.pw_name, group=group
        )
        (self.folder / "proftpd.conf").write_text(text)
        home = f"{who.pw_uid}:{who.pw_gid}::{self.www}:/bin/false"
        passwords = self.folder / "passwords"
        passwords.write_text(f"{self.USER}:{self.HASH}:{home}\n")
        passwords.chmod(0o600)

    def arguments(self) -> list[str]:
        return ["-n", "-q", "-c", str(self.folder / "proftpd.conf")]


class SessionServer(FileServer):
    """A program that serves one connection, which is its standard input and output; as of inetd."""

    words: tuple[str, ...] = ()
    stop_signal = signal.SIGTERM
    LISTENER = """
import signal, socket, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
sessions = []
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        client = listener.accept()[0]
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # replies are two writes
        sessions = [one for one in sessions if one.poll() is None]
        sessions.append(subprocess.Popen(sys.argv[2:], stdin=client, stdout=client))
        client.close()
"""

    def command(self) -> list[str]:
        listener = [sys.executable, "-c", self.LISTENER, str(self.port)]
        return ["env", "-C", str(self.www), *listener, *self.under, self.program, *self.words]


class BusyboxServer(SessionServer):
    words = ("ftpd", ".")


class FtpClient(ftplib.FTP):
    """
    Resets each connection for data once all has been read. The server ends them, so that its ports
    would stay taken for a minute each (TIME_WAIT): looking for one that is free would soon take ten
    times as long as all else.
    """

    RESET = struct.pack("ii", 1, 0)

    def ntransfercmd(
        self, cmd: str, rest: int | str | None = None
    ) -> tuple[socket.socket, int | None]:
        connection, size = super().ntransfercmd(cmd, rest)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, self.RESET)
        return connection, size


def ftp_load(server: Server, requests: int) -> float:
    """So many files, by clients that stay; each is compared. Files per second."""
    want = (server.www / "file").read_bytes()
    clients = [FtpClient() for _ in range(FTP_CLIENTS)]
    try:
        for client in clients:
            client.connect("127.0.0.1", server.port, timeout=100)
            client.login(ProftpdServer.USER, ProftpdServer.PASSWORD)
        begin = time.perf_counter()
        for number in range(requests):
            got: list[bytes] = []
            clients[number % FTP_CLIENTS].retrbinary("RETR file", got.append)
            if b"".join(got) != want:
                raise ServerError("a file was sent wrongly")
        rate = requests / (time.perf_counter() - begin)
        for client in clients:
            client.quit()
        return rate
    except ftplib.all_errors as error:
        raise ServerError(f"ftp: {error!r}\n{server.last_words()}") from error
    finally:
        for client in clients:
            client.close()


@dataclass(frozen=True)
class Service(Needing):
    """`sizes`: KiB of the file that is asked for; 0: no files."""

    make: Callable[[Path, list[str], Path], Server]
    load: Callable[[Server, int], float]
    unit: str
    full: int
    quick: int
    sizes: tuple[int, ...] = (0,)
    needs: tuple[str, ...] = ()

    def start(self, folder: Path, under: list[str], kib: int) -> Server:
        www = folder.parent / f"www{kib}"
        if not www.exists():
            www.mkdir(parents=True)
            www.chmod(0o755)
            (www / "file").write_bytes(b"x" * (kib * 1024 or FTP_BYTES))
        server = self.make(folder, under, www)
        server.requests_per_connection = PER_CONNECTION
        return server


def _plain(kind: type[Server]) -> Callable[[Path, list[str], Path], Server]:
    return lambda folder, under, _: kind(folder, under)


def _web(kind: type[Server]) -> Service:
    return Service(kind, ab_load, "requests", 25_000, 3_000, (4, 64), ("ab",))


SERVICES = {
    "nginx": _web(BuiltNginx),
    "lighttpd": _web(BuiltLighttpd),
    "httpd": _web(BuiltApache),
    "redis": Service(
        _plain(BuiltRedis),
        lambda server, requests: requests_per_second(server.port, "set", requests),
        "requests", 100_000, 5_000, needs=("redis-benchmark",),
    ),
    "postgres": Service(
        _plain(BuiltPostgres), PROGRAMS["postgres"].load, "transactions", 5_000, 500,
        needs=("pgbench",),
    ),
    "bind": Service(
        _plain(BindServer), PROGRAMS["bind"].load, "queries", 500_000, 20_000, needs=("dnsperf",)
    ),
    "proftpd": Service(ProftpdServer, ftp_load, "files", 2_000, 500),
    "ftpd": Service(SessionServer, ftp_load, "files", 5_000, 500),
    "busybox": Service(BusyboxServer, ftp_load, "files", 5_000, 500),
}  # fmt: skip
