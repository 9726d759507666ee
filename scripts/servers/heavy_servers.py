# SPDX-License-Identifier: MIT
"""
Servers made of many processes or threads: Apache httpd (prefork), PostgreSQL, BIND. As servers.py:
each in a folder of its own, on a port of the kernel's choice, with nothing taken from /etc.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path

from servers import PATIENCE, FileServer, Server, ServerError, for_everybody, search_path

WORKERS = 10


class ApacheServer(FileServer):
    """The prefork module with ten workers, as in the papers; keep-alive without a limit."""

    program = "apache2"
    kills_its_group = True
    requests_per_connection = 0  # no limit
    MODULES = Path("/usr/lib/apache2/modules")
    MODULE_NAMES = ("mpm_prefork", "authz_core")
    CONFIGURATION = """
ServerRoot {folder}
ServerName localhost
ServerSignature Off
{load}
{user}
Listen 127.0.0.1:{port}
PidFile {folder}/httpd.pid
ErrorLog {folder}/error.log
Mutex default:{folder}
DocumentRoot {www}
StartServers {workers}
MinSpareServers {workers}
MaxSpareServers {workers}
MaxRequestWorkers {workers}
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests {per_connection}
KeepAliveTimeout 5
<Directory {www}>
    Require all granted
</Directory>
"""

    def prepare(self) -> None:
        load = "".join(
            f"LoadModule {name}_module {self.MODULES}/mod_{name}.so\n"
            for name in self.MODULE_NAMES
        )
        text = self.CONFIGURATION.format(
            folder=self.folder,
            load=load,
            user="User www-data\nGroup www-data" if os.geteuid() == 0 else "",
            port=self.port,
            www=self.www,
            workers=WORKERS,
            per_connection=self.requests_per_connection,
        )
        (self.folder / "httpd.conf").write_text(text)

    def arguments(self) -> list[str]:
        return ["-D", "FOREGROUND", "-f", str(self.folder / "httpd.conf")]


def postgres_program(name: str) -> str | None:
    """The newest that Debian has installed; its folder is not in PATH."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / name).exists():
            return str(folder / name)
    return shutil.which(name)


class PostgresServer(Server):
    """
    A cluster with a database `postgres` and a superuser of that name whom everybody may be. The
    server refuses to be root: it then runs as Debian's user `postgres`. A template is made once per
    folder above and copied.
    """

    program = "postgres"
    stop_signal = signal.SIGINT  # "fast shutdown"
    CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 40
shared_buffers = 32MB
autovacuum = off
jit = off
max_wal_size = 256MB
huge_pages = off
"""

    def __init__(self, folder: Path, under: list[str]) -> None:
        super().__init__(folder, under)
        if os.geteuid() == 0:
            self.user = "postgres"
            if under:
                self.under = [str(for_everybody(Path(under[0]), folder.parent)), *under[1:]]

    def command(self) -> list[str]:
        return [*self.under, postgres_program("postgres") or "postgres", *self.arguments()]

    def initdb(self) -> str:
        return postgres_program("initdb") or "initdb"

    def prepare(self) -> None:
        template = self.folder.parent / "postgres-template"
        if not template.exists():
            template.mkdir()
            self._own(template)
            initdb = [self.initdb(), "-D", str(template), "-A", "trust"]
            self._run([*initdb, "-U", "postgres", "-N", "-E", "UTF8", "--locale=C"])
        data = self.folder / "data"
        if not data.exists():
            shutil.copytree(template, data)
            self._own(data)
            data.chmod(0o700)
        with (data / "postgresql.conf").open("a") as f:
            f.write(self.CONFIGURATION.format(port=self.port))

    def _own(self, path: Path) -> None:
        if not self.user:
            return
        who = pwd.getpwnam(self.user)
        for one in (path, *path.rglob("*")):
            os.chown(one, who.pw_uid, who.pw_gid)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            user=self.user,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise ServerError(f"{' '.join(command)}: {done.stdout[-400:]}")

    def arguments(self) -> list[str]:
        return ["-D", str(self.folder / "data")]

    def serves(self) -> bool:
        """A start-up packet is answered, and not by "the database system is starting up"."""
        words = b"user\0postgres\0database\0postgres\0\0"
        packet = struct.pack("!ii", 8 + len(words), 196608) + words
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as s:
            s.sendall(packet)
            answer = s.recv(1)
            if answer == b"R":
                s.recv(4096)
                s.sendall(b"X\0\0\0\4")
            return answer == b"R"


class BindServer(Server):
    """named with one zone of its own, asked over UDP; no recursion, no control channel."""

    program = "named"
    HOSTS = 1000
    CONFIGURATION = """
options {{
    directory "{folder}";
    pid-file "{folder}/named.pid";
    session-keyfile "{folder}/session.key";
    listen-on port {port} {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    recursion no;
    notify no;
    dnssec-validation no;
    minimal-responses yes;
}};
controls {{ }};
zone "cairn.test" {{ type primary; file "{folder}/zone"; }};
"""
    ZONE = """$TTL 300
@ IN SOA ns.cairn.test. root.cairn.test. ( 1 3600 600 86400 300 )
@ IN NS ns.cairn.test.
ns IN A 127.0.0.1
"""

    def prepare(self) -> None:
        text = self.CONFIGURATION.format(folder=self.folder, port=self.port)
        (self.folder / "named.conf").write_text(text)
        hosts = (f"h{n} IN A 10.0.{n // 250}.{n % 250 + 1}\n" for n in range(self.HOSTS))
        (self.folder / "zone").write_text(self.ZONE + "".join(hosts))

    def arguments(self) -> list[str]:
        return ["-g", "-n", "1", "-U", "1", "-c", str(self.folder / "named.conf")]

    def ask(self, host: str, patience: float = PATIENCE) -> bytes:
        """The answer to one question for an A record, without its id."""
        name = b"".join(bytes([len(part)]) + part.encode() for part in host.split("."))
        question = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + name + b"\0\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(patience)
            s.connect(("127.0.0.1", self.port))
            s.send(question)
            return s.recv(4096)[2:]

    def serves(self) -> bool:
        return len(self.ask("h1.cairn.test", 2)) > 30


def program_path(program: str) -> str | None:
    """Where a server is installed, or None."""
    if program in ("postgres", "initdb", "pgbench"):
        return postgres_program(program)
    return shutil.which(program, path=search_path())
