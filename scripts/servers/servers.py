# SPDX-License-Identifier: MIT
"""
Starting and stopping real servers from Debian, bare or under Cairn, each in a folder of its own,
on a port that the kernel gave. For the demo, the tests of servers and the benchmarks.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resp import Connection

# Recoveries are refused when another thread of the program has run since the checkpoint, until
# threads are restored as well. jemalloc's background thread wakes up by itself; without it, a Redis
# that frees nothing lazily has one thread that runs.
NO_BG_THREAD = "--jemalloc-bg-thread no (a recovery is refused if another thread has run since)"


PATIENCE = 100.0  # seconds: more than anything takes on a machine that is busy
reserved: list[socket.socket] = []  # names of the ports that free_port() has given to this process


def processor_seconds(pids: list[int]) -> float:
    """
    Of all threads of these processes, in nanoseconds, and of children that have ended, in ticks.
    """
    seconds = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
            for task in Path(f"/proc/{pid}/task").iterdir():
                seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue
    return seconds


class ServerError(Exception):
    """The server did not start, or is gone."""


def free_port() -> int:
    """
    Below those that the kernel gives to clients, of which there are thousands: until the server is
    there, one of them could take it. Another process that looks for one meanwhile must not find
    the same: a name that is bound as long as this process lives says that it is taken.
    """
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    ports = range(10_000, int(text.split()[0]))
    for port in random.sample(ports, min(50, len(ports))):
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as s:
            try:
                name.bind(f"\0cairn-port-{port}")
                s.bind(("127.0.0.1", port))
                reserved.append(name)
                return port
            except OSError:
                name.close()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tied(command: list[str]) -> list[str]:
    """To be killed when we end, however we end: nobody is left behind to load a machine."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]


def for_everybody(cairn: Path, folder: Path) -> Path:
    """The command where any user may run it: below /root only a copy of it and its agent can be."""
    if all(each.stat().st_mode & 1 for each in cairn.resolve().parents):
        return cairn
    copy = folder / "for-everybody"
    for name in ("bin/cairn", "lib/libcairn-agent.so"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(cairn.parents[1] / name, copy / name)
    return copy / "bin" / "cairn"


def search_path() -> str:
    """PATH with the folders where Debian puts servers."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


@dataclass
class Recovery:
    """One line of the agent's log about a crash that was survived."""

    microseconds: float
    suspect: str  # the peer whose connection was reset, "127.0.0.1:PORT"
    line: str


class Server:
    """
    One server process (and its workers). `under` is the command that it is started with: [] for a
    bare one, or `cairn run ... --`. Subclasses say what to run and how to see that it serves.
    """

    program = ""
    stop_signal = signal.SIGTERM
    user: str | None = None  # who runs it; None: the caller
    capabilities: tuple[str, ...] = ()  # that it keeps as that user
    kills_its_group = False  # a session of its own, or our process would be killed with it

    def __init__(self, folder: Path, under: list[str], port: int | None = None) -> None:
        self.folder = folder
        self.under = under
        self.port = port or free_port()
        self.log = folder / "server.log"  # what the server says
        self.errors = folder / "agent.log"  # what the agent says, and the server on fd 2
        self.process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Write what the server needs into the folder."""

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def serves(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=2):
            return True

    def command(self) -> list[str]:
        program = shutil.which(self.program, path=search_path()) or self.program
        return [*self.under, program, *self.arguments()]

    def _starting(self) -> tuple[list[str], str | None]:
        """The command, and who starts it: it is root that gives capabilities away."""
        command = tied(self.command())
        if not self.user or not self.capabilities:
            return command, self.user
        names = ",".join(f"+{name}" for name in self.capabilities)
        who = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        kept = [f"--inh-caps={names}", f"--ambient-caps={names}"]
        return ["setpriv", *who, *kept, "--", *command], None

    def start(self, patience: float = PATIENCE) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # servers that drop privileges read from here
        self.prepare()
        command, user = self._starting()
        with self.log.open("ab") as out, self.errors.open("ab") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                user=user,
                group=user,
                start_new_session=self.kills_its_group,
            )
        end = time.monotonic() + patience
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.serves():
                    return
            except OSError:
                pass
            time.sleep(0.02)
        status = self.process.poll()
        self.stop()
        how = "did not answer" if status is None else f"ended with {status}"
        raise ServerError(f"{' '.join(self.command()[:8])} ... {how}\n{self.tail()}")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """As if the power failed."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> int | None:
        """Ask it to end; its exit status (negative: the signal), None if it had to be killed."""
        if not self.process:
            return None
        status: int | None = None
        if self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for pid in self.family():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()
        self.process = None
        return status

    def family(self) -> list[int]:
        """The pids of the server and its children (workers)."""
        if not self.process:
            return []
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            children = []
        return [pid, *map(int, children)]

    def descriptor_count(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd")) if self.process else 0

    def recoveries(self) -> list[Recovery]:
        found = []
        for line in self.errors.read_text(errors="replace").splitlines():
            match = re.search(r"\brecovered\b.*?([0-9.]+) us\b(?:.*\bsuspect (\S+))?", line)
            if match:
                found.append(Recovery(float(match.group(1)), match.group(2) or "", line))
        return found

    def await_recoveries(self, count: int) -> int:
        """Until there are so many: a reset reaches its client before the line is written."""
        end = time.monotonic() + PATIENCE
        while len(self.recoveries()) < count and time.monotonic() < end:
            time.sleep(0.01)
        return len(self.recoveries())

    def last_words(self) -> str:
        """The last line of `cairn run` or of the agent."""
        lines = self.errors.read_text(errors="replace").splitlines() if self.errors.exists() else []
        said = [line for line in lines if line.startswith(("cairn: ", "cairn run: "))]
        return said[-1] if said else "no checkpoint was taken, and nothing said why"

    def tail(self) -> str:
        """The last lines of both logs, and how the process ended if it did: for a message."""
        lines = []
        if self.process and self.process.poll() is not None:
            lines.append(f"the server ended with status {self.process.returncode}")
        for path in (self.errors, self.log):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-12:]
        return "\n".join(f"    {line}" for line in lines)


def figures(build: Path, server: Server) -> dict[str, Any]:
    """Sums over the server and its workers of what `cairn stat --json` says; texts as they are."""
    sums: dict[str, Any] = {}
    for pid in server.family():
        done = subprocess.run(
            [str(build / "bin" / "cairn"), "stat", "--json", str(pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            continue
        for key, value in json.loads(done.stdout).items():
            if isinstance(value, (int, float)):
                sums[key] = sums.get(key, 0) + value
            else:
                sums[key] = value
    return sums


class RedisServer(Server):
    program = "redis-server"

    def arguments(self) -> list[str]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
        return [*options, "--jemalloc-bg-thread", "no"]

    def serves(self) -> bool:
        with Connection(self.port, timeout=2) as connection:
            return connection.call("PING") == b"PONG"


class MemcachedServer(Server):
    program = "memcached"

    def arguments(self) -> list[str]:
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        return ["-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "1", *user]


class FileServer(Server):
    """One that hands out the files of folder www."""

    def __init__(self, folder: Path, under: list[str], www: Path) -> None:
        super().__init__(folder, under)
        self.www = www


class NginxServer(FileServer):
    """Master and two workers, which drop to another user when started as root, as Debian's does."""

    program = "nginx"
    requests_per_connection = 1000  # nginx's default
    stop_signal = signal.SIGQUIT

    CONFIGURATION = """
daemon off;
{user}
worker_processes 2;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests {per_connection};
    default_type text/plain;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {www};
        location = /hello {{ return 200 "hello\\n"; }}
    }}
}}
"""

    def prepare(self) -> None:
        user = "user www-data;" if os.geteuid() == 0 else ""
        text = self.CONFIGURATION.format(
            folder=self.folder,
            port=self.port,
            www=self.www,
            user=user,
            per_connection=self.requests_per_connection,
        )
        (self.folder / "nginx.conf").write_text(text)

    def arguments(self) -> list[str]:
        return ["-p", f"{self.folder}/", "-c", str(self.folder / "nginx.conf")]


class LighttpdServer(FileServer):
    program = "lighttpd"
    requests_per_connection = 1000  # lighttpd's default

    def prepare(self) -> None:
        (self.folder / "lighttpd.conf").write_text(
            f'server.document-root = "{self.www}"\n'
            f'server.bind = "127.0.0.1"\nserver.port = {self.port}\n'
            f'mimetype.assign = ( "" => "text/plain" )\n'
            f"server.max-keep-alive-requests = {self.requests_per_connection}\n"
        )

    def arguments(self) -> list[str]:
        return ["-D", "-f", str(self.folder / "lighttpd.conf")]
