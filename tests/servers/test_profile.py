#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
`cairn profile`: the loops of a program whose loops are known (profiled.c), of servers and of
tools, and that `cairn run` takes checkpoints at the site that was found.

    test_profile.py BUILD      with SERVER=profile_PROGRAM in the environment
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from under_cairn import Failed, expect, main, need_program, skip

from heavy_servers import ApacheServer, PostgresServer, postgres_program
from servers import (
    LighttpdServer,
    MemcachedServer,
    NginxServer,
    RedisServer,
    Server,
    for_everybody,
)
from web_answers import write_files

QUESTIONS = "".join(f"select {n};\n" for n in range(40))


def profile(
    build: Path,
    command: list[str],
    load: str = "",
    user: str | None = None,
    text: str = "",
    seconds: float = 1.5,
) -> dict[str, Any]:
    """The report as JSON. `text` goes to the program's input, a line each 20 ms."""
    words = ["--load", load] if load else ["--seconds", str(seconds)]
    process = subprocess.Popen(
        [str(build / "bin" / "cairn"), "profile", "--json", *words, "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=user,
        group=user,
        start_new_session=True,  # Apache ends its whole group
    )
    assert process.stdin
    try:
        for line in text.splitlines(keepends=True):
            process.stdin.write(line)
            process.stdin.flush()
            time.sleep(0.02)
    except BrokenPipeError:
        pass  # the time was over before
    out, err = process.communicate(timeout=200)
    report = [line for line in out.splitlines() if line.startswith('{"seconds"')]
    expect(process.returncode == 0 and len(report) == 1, f"a report ({err[-300:]})")
    return json.loads(report[0])


def loop_of(row: dict[str, Any]) -> str | None:
    """The function that holds the loop; None if no loop was seen."""
    return None if row["loop"] is None else row["stack"][row["loop"]]["function"]


def rows(report: dict[str, Any], call: str) -> list[tuple[int, dict[str, Any]]]:
    """(processes of the class, row) of all that live in this call."""
    return [
        (one["processes"], row)
        for one in report["classes"]
        for row in one["threads"]
        if row["call"] == call
    ]


def patiently(test: Callable[[Path, Path, float], None], build: Path, folder: Path) -> None:
    """What a busy machine does not show in 1.5 seconds it may show in more."""
    for seconds in (1.5, 3, 6, 12):
        try:
            return test(build, folder, seconds)
        except Failed as error:
            print(f"      not in {seconds} s: {error}", flush=True)
    return test(build, folder, 24)


# ---- a program whose loops are known


def serves(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    text = "x\n" * int(40 * seconds)
    report = profile(build, [program, "serve"], text=text, seconds=seconds)
    found = rows(report, "read")
    expect([loop_of(row) for _, row in found] == ["serve"], "serve() loops, start_up() does not")
    expect(report["at"] == ["func:next_request"], f"its site: {report['at']}")
    taken = checkpoints(build, report["at"][0], [program, "serve"], "x\n" * 60)
    expect(taken >= 2, f"cairn run takes {taken} checkpoints there")


def crunches(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "crunch"], seconds=seconds)
    found = rows(report, "computing")
    expect([loop_of(row) for _, row in found] == ["crunch"], "crunch() loops")
    site = report["at"][0]
    expect(re.fullmatch(r"func:step(/\d+)?", site) is not None, f"its site: {site}")
    expect(found[0][1]["rate"] > 100, f"its turns are counted: {found[0][1]['rate']}")


def retries(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "retry"], seconds=seconds)
    found = rows(report, "poll")
    expect([loop_of(row) for _, row in found] == ["work"], "the loop of retries is not taken")
    expect(report["at"] == ["wait"], "its site: wait")


def has_children(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "family"], seconds=seconds)
    found = rows(report, "poll")
    seen = sorted((count, loop_of(row)) for count, row in found)
    expect(seen == [(1, "slow"), (3, "work")], f"the classes of children: {seen}")
    expect(len(report["classes"]) == 3, "and the parent")


def has_threads(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "threads"], seconds=seconds)
    found = rows(report, "poll")
    expect([loop_of(row) for _, row in found] == ["work"], "the thread's loop")


def has_passing_threads(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "passing"], seconds=seconds)
    found = report["classes"][0]["threads"]
    expect(loop_of(found[0]) == "turns", "the thread that stays")
    others = sum(row["threads"] for row in found[1:])
    expect(others <= 1, f"and the one that is there at the end: {others}")


def sends(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "sends"], seconds=seconds)
    found = {loop_of(row): row["at"] for row in report["classes"][0]["threads"]}
    expect(found.get("answers") == "output", f"a datagram is output: {found}")
    expect("sleeps" in found and not found["sleeps"], f"but not another thread's: {found}")


def accepts(build: Path, folder: Path, seconds: float) -> None:
    """What `cairn run` does not take for a wait is no site `wait`, nor is a rare poll beside it."""
    program = str(build / "tests" / "servers" / "profiled")
    (found,) = profile(build, [program, "accepts"], seconds=seconds)["classes"][0]["threads"]
    expect(loop_of(found) == "accepts", f"the loop: {found}")
    expect(str(found["at"]).startswith("func:take_client"), f"what it calls: {found['at']}")


def has_helpers(build: Path, folder: Path, seconds: float) -> None:
    """A few turns in a process that came and went are worth no site."""
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "helpers"], seconds=seconds)
    expect(report["passing"] >= 10, f"they came and went: {report['passing']}")
    expect(len(report["classes"]) == 1, "and are no class")
    expect(report["at"] == ["wait"], f"the parent's site alone: {report['at']}")


def many_places(build: Path, folder: Path, seconds: float) -> None:
    """The start-up does not keep the loop out of the thread's table of places."""
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "places"], seconds=seconds + 2)
    found = rows(report, "poll")
    expect([loop_of(row) for _, row in found] == ["work_in_two"], "the loop after the start-up")


def executes(build: Path, folder: Path, seconds: float) -> None:
    """func: means the program that is started, not one that it executes."""
    program = str(build / "tests" / "servers" / "profiled")
    command = ["sh", "-c", f"sleep 0.1; exec {program} serve"]
    report = profile(build, command, text="x\n" * int(40 * seconds), seconds=seconds)
    found = [row["at"] for _, row in rows(report, "read") if loop_of(row) == "serve"]
    expect(len(found) == 1 and not str(found[0]).startswith("func:"), f"its site: {found}")


def becomes(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    report = profile(build, [program, "becomes"], seconds=seconds)
    found = [loop_of(row) for row in report["classes"][0]["threads"]]
    expect(found == ["work"], f"no thread of the program before: {found}")


def work_done(build: Path, mode: str, seconds: float) -> int:
    words = [str(build / "bin" / "cairn"), "profile", "--seconds", str(seconds), "--"]
    words += [str(build / "tests" / "servers" / "profiled"), mode]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    found = re.search(r"turns (\d+)", done.stderr)
    expect(found is not None, f"it says how far it came: {done.stderr}")
    assert found
    return int(found[1])


def is_not_disturbed(build: Path, folder: Path, seconds: float) -> None:
    daemon, other = work_done(build, "daemon", seconds), work_done(build, "counts", seconds)
    expect(daemon * 4 > other, f"a daemon is not slower: {daemon} turns, {other}")
    words = [str(build / "bin" / "cairn"), "profile", "--seconds", "4", "--"]
    words += [str(build / "tests" / "servers" / "profiled"), "writes"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    expect("full" in done.stderr, f"a write that waits is not cut short: {done.stderr}")


def is_static(build: Path, folder: Path, seconds: float) -> None:
    """Such a program has no table of functions, and `cairn run` refuses it."""
    words = [str(build / "bin" / "cairn"), "profile", "--seconds", str(seconds), "--"]
    words += [str(build / "tests" / "servers" / "profiled_static"), "retry"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    right = done.returncode == 0 and "loop in work" in done.stdout
    expect(right, f"its loop: {done.returncode}, {done.stdout}")
    right = "cairn run" not in done.stdout and "statically linked" in done.stderr
    expect(right, f"but no command to paste: {done.stderr}")


def can_be_pasted(build: Path, folder: Path, seconds: float) -> None:
    program = [str(build / "tests" / "servers" / "profiled"), "retry"]
    program += ["it's", "#", "a b", "", "~", "[a]", "$x", "\\"]
    words = [str(build / "bin" / "cairn"), "profile", "--seconds", str(seconds), "--", *program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    said = shlex.split(done.stdout.splitlines()[-1])
    expect(said == ["cairn", "run", "--at", "wait", "--", *program], f"the command: {said}")


def checkpoints(build: Path, site: str, command: list[str], text: str) -> int:
    words = [str(build / "bin" / "cairn"), "run", "--stats=json", "--at", site, "--", *command]
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=200)
    found = re.search(r'"checkpoints": (\d+)', done.stderr)
    return int(found[1]) if found else 0


def processes_of(session: int, word: str) -> list[str]:
    """What `ps` says of them; orphans that are dead may wait for an init that takes its time."""
    found = subprocess.run(
        ["ps", "-s", str(session), "-o", f"stat=,{word}="], capture_output=True, text=True
    )
    return [line.split()[1] for line in found.stdout.splitlines() if not line.startswith("Z")]


def interrupted(build: Path, folder: Path, seconds: float) -> None:
    """What the terminal sends ends program, load and command, with the report."""
    program = str(build / "tests" / "servers" / "profiled")
    load = "sleep 1000; true"
    for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        process = subprocess.Popen(
            [str(build / "bin" / "cairn"), "profile", "--load", load, "--", program, "family"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        for _ in range(600):
            if "sleep" in processes_of(process.pid, "comm"):
                break
            time.sleep(0.05)
        time.sleep(seconds)
        os.killpg(process.pid, sig)
        out, err = process.communicate(timeout=200)
        left = processes_of(process.pid, "comm")
        for pid in processes_of(process.pid, "pid"):
            os.kill(int(pid), signal.SIGKILL)
        report = process.returncode == 0 and "loop in work" in out
        expect(report, f"{sig.name}: the report came: {err}")
        expect(not left, f"{sig.name}: no process is left {left}")


def goes_on_under_nohup(build: Path, folder: Path, seconds: float) -> None:
    program = str(build / "tests" / "servers" / "profiled")
    process = subprocess.Popen(
        ["nohup", str(build / "bin" / "cairn"), "profile", "--seconds", str(4 * seconds), "--",
         program, "family"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    begun = time.monotonic()
    time.sleep(seconds)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=200)
    told = process.returncode == 0 and "loop in work" in out
    expect(told and time.monotonic() - begun > 2 * seconds, f"nohup is minded: {err}")


def refusals(build: Path, folder: Path) -> None:
    command = [str(build / "bin" / "cairn"), "profile"]
    for words, status in (
        (["--", "/nonexistent"], 127),
        (["--", "/etc/passwd"], 126),
        ([], 2),
        (["--seconds", "x", "--", "true"], 2),
        (["--nonsense"], 2),
        (["--", "true"], 0),
    ):
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=200)
        expect(done.returncode == status, f"{words}: status {done.returncode}")
    words = [*command, "--", "sh", "-c", "kill -SEGV $$"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    expect("signal 11" in done.stderr, f"a crash is told: {done.stderr}")


# ---- servers


def served(port: int, command: str) -> str:
    """The load begins when the program's threads wait, or after seconds: it may not listen yet."""
    there = f"import socket; socket.create_connection(('127.0.0.1', {port})).close()"
    return f'until python3 -c "{there}" 2>/dev/null; do sleep 0.1; done; exec {command}'


def ab(port: int) -> str:
    return served(port, f"ab -q -k -c 10 -n 20000 http://127.0.0.1:{port}/100")


def ready(server: Server) -> list[str]:
    server.folder.mkdir(parents=True, exist_ok=True)
    server.folder.chmod(0o755)
    server.prepare()
    return server.command()


def redis(build: Path, folder: Path) -> None:
    need_program("redis-server", "redis-benchmark")
    server = RedisServer(folder / "server", [])
    load = served(server.port, f"redis-benchmark -p {server.port} -n 20000 -t set -q")
    report = profile(build, ready(server), load)
    expect(loop_of(report["classes"][0]["threads"][0]) == "aeMain", "redis: aeMain loops")
    expect(report["classes"][0]["threads"][0]["call"] == "epoll_wait", "in epoll_wait")
    expect(report["at"] == ["wait"], "its site: wait")


def nginx(build: Path, folder: Path) -> None:
    need_program("nginx", "ab")
    write_files(folder / "www")
    server = NginxServer(folder / "server", [], folder / "www")
    report = profile(build, ready(server), ab(server.port))
    counts = [one["processes"] for one in report["classes"]]
    expect(counts == [1, 2], f"a master and two workers: {counts}")
    worker = report["classes"][1]
    expect(worker["title"].startswith("nginx: worker"), worker["title"])
    expect(worker["threads"][0]["call"] == "epoll_wait", "workers wait in epoll_wait")
    expect(worker["threads"][0]["loop"] is not None, "and loop")
    expect(report["at"] == ["wait"], "its site: wait")


def lighttpd(build: Path, folder: Path) -> None:
    need_program("lighttpd", "ab")
    write_files(folder / "www")
    server = LighttpdServer(folder / "server", [], folder / "www")
    report = profile(build, ready(server), ab(server.port))
    row = report["classes"][0]["threads"][0]
    expect(row["call"] == "epoll_wait" and row["loop"] is not None, "lighttpd: epoll_wait")
    expect(report["at"] == ["wait"], "its site: wait")


def apache(build: Path, folder: Path) -> None:
    need_program("apache2", "ab")
    write_files(folder / "www")
    server = ApacheServer(folder / "server", [], folder / "www")
    server.requests_per_connection = 10
    report = profile(build, ready(server), ab(server.port))
    workers = max(report["classes"], key=lambda one: one["processes"])
    expect(workers["processes"] >= 10, f"{workers['processes']} workers of one class")
    expect(workers["threads"][0]["call"] == "accept4", "they wait in accept4")
    expect(report["at"] == ["wait"], "its site: wait")


def memcached(build: Path, folder: Path) -> None:
    need_program("memcached")
    server = MemcachedServer(folder / "server", [])
    (folder / "load.py").write_text(
        "import socket\n"
        f"all = [socket.create_connection(('127.0.0.1', {server.port})) for _ in range(5)]\n"
        "for turn in range(300):\n"
        "    for one in all:\n"
        "        one.sendall(b'get a\\r\\n')\n"
        "        one.recv(99)\n"
    )
    # One connection more would wake the thread that takes them.
    load = f"until python3 {folder / 'load.py'} 2>/dev/null; do sleep 0.1; done"
    report = profile(build, ready(server), load)
    found = [row for _, row in rows(report, "epoll_wait") if loop_of(row) == "event_base_loop"]
    # The thread that takes connections loops there, too: its clock wakes it once a second.
    busy = [row["calls"] for row in found if row["calls"] > 100]
    expect(len(busy) == 1 and busy[0] > 1000, f"its worker thread loops in epoll_wait: {found}")
    expect(report["at"] == ["wait"], "its site: wait")


def postgres(build: Path, folder: Path) -> None:
    if not all(postgres_program(name) for name in ("postgres", "initdb", "psql")):
        skip("postgresql is not installed")
    server = PostgresServer(folder / "server", [])
    psql = f"{postgres_program('psql')} -q -h 127.0.0.1 -p {server.port} -U postgres postgres"
    # All of it may wait for the disk before it is ready.
    until = f"until {psql} -c 'select 0' >/dev/null 2>&1; do sleep 0.1; done"
    ask = "(for n in $(seq 100); do echo 'select 1;'; sleep 0.01; done)"
    load = f"{until}; {ask} | {psql} >/dev/null"
    command = for_everybody(build / "bin" / "cairn", folder)
    report = profile(command.parents[1], ready(server), load, user=server.user)
    backends = [row for _, row in rows(report, "epoll_wait") if loop_of(row) == "PostgresMain"]
    # One that is slow finds the next question there already, and does not wait for it. That of the
    # question whether it is there may be seen as well, or as a class of its own.
    calls = [row["calls"] for row in backends]
    expect(max(calls, default=0) > 10, f"backends loop in PostgresMain: {calls} calls")
    expect(report["at"] == ["wait"], "its site: wait")


# ---- tools


def sqlite(build: Path, folder: Path, seconds: float) -> None:
    need_program("sqlite3")
    report = profile(build, ["sqlite3"], text=QUESTIONS, seconds=seconds)
    expect(report["classes"][0]["threads"][0]["call"] == "read", "sqlite3 waits in read")
    site = report["at"][0]
    taken = checkpoints(build, site, ["sqlite3"], QUESTIONS)
    expect(taken > 10, f"{taken} checkpoints at {site}")


def lua(build: Path, folder: Path, seconds: float) -> None:
    need_program("lua5.4")
    script = folder / "echo.lua"
    script.write_text('for line in io.lines() do io.write(line, "\\n") io.flush() end\n')
    command = ["lua5.4", str(script)]
    report = profile(build, command, text=QUESTIONS, seconds=seconds)
    expect(report["classes"][0]["threads"][0]["call"] == "read", "the script waits in read")
    site = report["at"][0]
    taken = checkpoints(build, site, command, QUESTIONS)
    expect(taken > 10, f"{taken} checkpoints at {site}")


def test(build: Path, mode: str, folder: Path) -> None:
    name = os.environ.get("SERVER", "profile_known").removeprefix("profile_")
    timed = {
        "known": [serves, crunches, retries, has_children, has_threads, has_passing_threads],
        "sites": [sends, accepts, has_helpers, many_places, executes, becomes, is_static]
        + [can_be_pasted],
        "ends": [interrupted, goes_on_under_nohup, is_not_disturbed],
        "sqlite": [sqlite],
        "lua": [lua],
    }
    if name in timed:
        for part in timed[name]:
            patiently(part, build, folder)
        if name == "ends":
            refusals(build, folder)
    else:
        {
            "redis": redis,
            "nginx": nginx,
            "lighttpd": lighttpd,
            "apache": apache,
            "memcached": memcached,
            "postgres": postgres,
        }[name](build, folder)


if __name__ == "__main__":
    main(test)
