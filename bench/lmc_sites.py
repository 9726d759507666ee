# SPDX-License-Identifier: MIT
"""
"Speculative Memory Checkpointing", section 6, from start to end: nginx and lighttpd are built so
that they count their loops (-fcairn-profile), serve a test load, and are built once more with a
checkpoint at the top of each loop that `cairn profile report` recommends (-fcairn-sites). Nobody
names a function. What they answer must be what the program without hooks answers, byte by byte;
then both serve the load of lmc_servers.py.

    lmc_sites.py [--build DIR] [nginx | lighttpd]...      show it step by step
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
    sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "servers")]

from debian_source import STORE
from lmc_programs import Builder, BuildError, asked, built, newest
from lmc_programs import missing as missing_program
from lmc_recipes import Recipe
from lmc_servers import Point, one_run
from lmc_servers import line as line_of
from lmc_services import SERVICES
from loads import ab_load
from results import digest
from rounds import Found, RunLog, reason_of
from servers import Server, ServerError
from smc import Settings

NAMES = ("nginx", "lighttpd")
ROWS = ("plain", "sites")
KIB = 4
POINTS = tuple(Point(row, KIB) for row in ROWS)
TEST_LOAD = 2_000

REQUESTS = [
    b"GET /file HTTP/1.0\r\n\r\n",
    b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"HEAD /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /file HTTP/1.1\r\nHost: x\r\nRange: bytes=100-299\r\nConnection: close\r\n\r\n",
    b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /../file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"PUT /file HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    b"GET /file HTTP/1.1\r\nConnection: close\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"GET /file HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n"
    b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
]


# ---- building


def variant(recipe: Recipe, build: Path, name: str, option: str, made_of: str = "") -> Path:
    """The program compiled and linked with that option, anew if what it is made of has changed."""
    out, mark = recipe.path(name), recipe.path(name).with_suffix(".made-of")
    now = digest(f"{recipe} {made_of}")
    fresh = out.exists() and out.stat().st_mtime >= newest(build)
    if fresh and mark.exists() and mark.read_text() == now:
        return out
    configured = Builder(replace(recipe, name=f"{recipe.name}-configured", sites=()), build)
    configured.configure()
    builder = Builder(replace(recipe, name=f"{recipe.name}-{name}", sites=()), build)
    shutil.rmtree(builder.folder, ignore_errors=True)
    shutil.copytree(configured.folder, builder.folder, symlinks=True)
    builder.log.write_text("")
    builder.run(recipe.make, f"{builder.cairn_cc} {option}")
    out.parent.mkdir(exist_ok=True)
    shutil.copy2(builder.folder / recipe.binary, out)
    mark.write_text(now)
    return out


def server_of(recipe: Recipe, row: str, folder: Path, under: list[str]) -> Server:
    www = folder / f"www{KIB}"
    if not www.exists():
        www.mkdir()
        www.chmod(0o755)
        (www / "file").write_bytes(bytes(32 + n * n % 95 for n in range(KIB * 1024)))
    server = SERVICES[recipe.name].start(folder / row, under, KIB)
    server.program = str(recipe.path(row))
    return server


def profile(recipe: Recipe, build: Path, folder: Path) -> Path:
    """The profile of a test load."""
    variant(recipe, build, "counting", "-fcairn-profile")
    file = STORE / f"{recipe.name}.profile"
    file.unlink(missing_ok=True)
    server = server_of(recipe, "counting", folder, ["env", f"CAIRN_PROFILE={file}"])
    try:
        server.start()
        ab_load(server, TEST_LOAD)
    finally:
        server.stop()
    return file


def report(build: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [build / "bin" / "cairn", "profile", "report", *words], capture_output=True, text=True
    )
    if done.returncode:
        raise ServerError(done.stderr.strip())
    return done.stdout


# ---- answers


def answers(server: Server) -> list[bytes]:
    """To each request, without what differs from second to second."""
    out = []
    for request in REQUESTS:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(request)
            got = b"".join(iter(lambda: s.recv(65536), b""))
        out.append(re.sub(rb"\r\nDate: [^\r]*", b"", got))
    return out


def compare(recipe: Recipe, folder: Path) -> int:
    """How many answers there were, all alike."""
    seen = []
    for row in ROWS:
        server = server_of(recipe, row, folder, ["env", "CAIRN_STATS=json"])
        try:
            server.start()
            seen.append(answers(server))
        finally:
            server.stop()
    for request, plain, sites in zip(REQUESTS, *seen):
        if plain != sites or not plain:
            raise ServerError(f"{request!r} is answered {sites[:200]!r}, not {plain[:200]!r}")
    return len(REQUESTS)


# ---- the part of the benchmark


def steps(settings: Settings) -> int:
    return settings.rounds * len(ROWS) * len(NAMES)


def make(name: str, build: Path, folder: Path) -> tuple[Recipe, dict[str, Any], int]:
    """The program with its sites, what its profile said, and how many answers were the same."""
    recipe = built(name, build)
    file = profile(recipe, build, folder)
    said = json.loads(report(build, "--json", file))
    loops = report(build, "--sites", file)
    variant(recipe, build, "sites", f"-fcairn-sites={file}", loops)
    return recipe, said, compare(recipe, folder)


def measure(settings: Settings, log: RunLog) -> Iterator[dict]:
    for name in NAMES:
        folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
        folder.chmod(0o755)
        try:
            recipe, said, same = make(name, settings.build, folder)
            found = log.fill(
                Found(POINTS),
                settings.rounds,
                lambda point: one_run(recipe, SERVICES[name], point, settings, folder),
                lambda point: f"{name} {point.row}",
            )
        except (BuildError, ServerError) as error:
            line = {"table": "lmc.sites", "program": name, "row": "all"}
            yield line | {"missing": reason_of(error)}
            continue
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sites = [x["function"] for c in said["classes"] for x in c["loops"] if x["site"]]
        for point in POINTS:
            line = line_of(name, point, found)
            line |= {"table": "lmc.sites", "sites": sites, "answers": same}
            yield line | {"classes": len(said["classes"]), "processes": said["processes"]}


def main() -> int:
    build, names = asked(__doc__, NAMES)
    settings = Settings(build=build, rounds=1, toy=False, quick=True)
    for name in names:
        reason = missing_program(name, build)
        if reason:
            print(f"{name}: {reason}", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory(prefix="cairn-sites-") as place:
            Path(place).chmod(0o755)
            recipe, _, same = make(name, build, Path(place))
            print(report(build, STORE / f"{name}.profile"))
            print(f"{name}: {same} answers, byte by byte those of the program without hooks")
            for point in POINTS:
                figures = one_run(recipe, SERVICES[name], point, settings, Path(place))
                print(
                    f"{name} {point.row}: {figures['rate']:.0f} requests/s, "
                    f"{figures['cpu_us']:.1f} us each, "
                    f"{figures['per_request']:.2f} checkpoints per request",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
