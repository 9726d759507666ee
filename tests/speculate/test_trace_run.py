#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
`cairn run --trace` records exactly the pages that a program writes, and cairn-bench reads them.

    test_trace_run.py CAIRN CAIRN_BENCH VICTIM TRACKER

The trace is decoded here once more, from the description of the format in speculate/trace.h.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FNV_PRIME, FNV_FIRST = 0x100000001B3, 0xCBF29CE484222325
PAGES, TURNS = 64, 40
TURNS_HOT = 250  # of pages that rest after they were written for long, and are hot meanwhile


def chain(data: bytes) -> int:
    value = FNV_FIRST
    for byte in data:
        value = (value ^ byte) * FNV_PRIME & (2**64 - 1)
    return value


class Decoder:
    """One trace; raises AssertionError where it is not as described."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def fixed(self, size: int) -> int:
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def check_chain(self) -> None:
        expected = chain(self.data[: self.at])
        assert self.fixed(8) == expected, f"chain before byte {self.at}"

    def intervals(self) -> list[list[int]]:
        assert self.data[:8] == b"cairntrc"
        self.at = 8
        version, page, length, reserved = (self.fixed(4) for _ in range(4))
        assert (version, page, reserved) == (1, 4096, 0)
        self.identity = self.data[self.at : self.at + length].decode()
        self.at += length
        self.check_chain()
        out: list[list[int]] = []
        while self.data[self.at : self.at + 1] == b"I":
            self.at += 1
            length = self.varint()
            end, _key, count, number, pages = self.at + length, self.varint(), self.varint(), 0, []
            for _ in range(count):
                step = self.varint()
                number += step >> 1 ^ -(step & 1)
                pages.append((number & (2**52 - 1)) << 12)
            assert self.at == end
            self.check_chain()
            out.append(pages)
        assert self.data[self.at : self.at + 1] == b"E", f"byte {self.at}"
        self.at += 1
        assert (self.fixed(8), self.fixed(8)) == (len(out), sum(map(len, out)))
        self.check_chain()
        assert self.at == len(self.data)
        return out


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def encoded(identity: str, intervals: list[list[int]]) -> bytes:
    """A whole trace, without context keys."""

    def fixed(value: int, size: int) -> bytes:
        return value.to_bytes(size, "little")

    def chained(data: bytes) -> bytes:
        return data + fixed(chain(data), 8)

    data = b"cairntrc" + fixed(1, 4) + fixed(4096, 4) + fixed(len(identity), 4) + fixed(0, 4)
    data = chained(data + identity.encode())
    for pages in intervals:
        body, before = varint(0) + varint(len(pages)), 0
        for page in pages:
            step, before = (page >> 12) - before, page >> 12
            body += varint(2 * step if step >= 0 else -2 * step - 1)
        data = chained(data + b"I" + varint(len(body)) + body)
    data += b"E" + fixed(len(intervals), 8) + fixed(sum(map(len, intervals)), 8)
    return chained(data)


def bench(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=200)


def record(
    cairn: str, victim: str, tracker: str, trace: Path, *more: str, still: bool = False,
    turns: int = TURNS, options: tuple[str, ...] = (),
) -> tuple[int, str]:
    """`still`: every mapping where it is in the next run that asks for it."""
    done = subprocess.run(
        (["setarch", "-R"] if still else [])
        + [cairn, "run", "--tracker", tracker, "--at", "wait", "--trace", str(trace), *options]
        + ["--", victim, str(turns), *more],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    if "ENOTRACK" in done.stderr:
        print(f"skip: no tracker {tracker} on this host")
        sys.exit(77)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return int(done.stdout.split()[0], 16), done.stdout


def is_written(i: int, k: int) -> bool:
    return bool(i >> k % 6 & 1) or k == 7 or (k == 9 and i < 100)


def check_pages(base: int, intervals: list[list[int]], turns: int = TURNS) -> None:
    """
    The return of each wait is a checkpoint, and the first opens the session: an empty interval, and
    one for each turn but the last, which does not end.
    """
    expected = [{k for k in range(PAGES) if is_written(i, k)} for i in range(turns - 1)]
    expected.insert(0, set())
    assert len(intervals) == turns, len(intervals)
    for i, pages in enumerate(intervals):
        here = [(p - base) // 4096 for p in pages if base <= p < base + PAGES * 4096]
        assert set(here) == expected[i], (i, sorted(here), sorted(expected[i]))
        assert len(set(pages)) == len(pages), f"interval {i} has a page twice"


def check_hot(cairn: str, victim: str, tracker: str, trace: Path) -> None:
    """A page that a strategy keeps hot is in the trace only where the program has written it."""
    for strategy in ("decay", "last", "active-fifo:every=30", "active-cks", "gspec", "histase",
                     "random"):  # fmt: skip
        base, _ = record(
            cairn, victim, tracker, trace, turns=TURNS_HOT, options=("--strategy", strategy)
        )
        try:
            check_pages(base, Decoder(trace.read_bytes()).intervals(), TURNS_HOT)
        except AssertionError as error:
            raise AssertionError(f"{strategy}: {error}") from error


def check_oracle(cairn: str, victim: str, tracker: str, trace: Path) -> None:
    """The same run once more, its profile at hand; then a run that is another one."""

    def run(profile: Path, turns: int, status: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            ["setarch", "-R", cairn, "run", "--tracker", tracker, "--at", "wait", "--stats=json"]
            + ["--strategy", f"oracle:profile={profile}", "--", victim, str(turns)],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == status, done
        return done.stdout, done.stderr

    _, said = run(trace, TURNS)
    assert len(said.splitlines()) == 1, f"it has complained: {said}"
    stats = json.loads(said)
    assert stats["strategy_why"] == "named", stats
    assert stats["undercopied"] < PAGES / 2, stats
    # Turns beyond those of the profile.
    _, said = run(trace, TURNS + 5)
    assert "oracle: interval" in said and "profile" in said, said
    assert json.loads(said.splitlines()[-1])["strategy_why"].startswith("given up"), said
    # Fewer turns than there: the profile goes on.
    _, said = run(trace, TURNS - 5)
    assert f"oracle: interval {TURNS - 5}:" in said and f"the profile has {TURNS}" in said, said
    assert "goes on" in json.loads(said.splitlines()[-1])["strategy_why"], said
    check_identity(run, cairn, victim, tracker, trace)
    broken = trace.with_suffix(".cut")
    broken.write_bytes(trace.read_bytes()[:-1])
    printed, said = run(broken, TURNS, status=2)
    assert "byte" in said and "cut short" in said and not printed, (printed, said)
    pipe = trace.with_suffix(".pipe")
    os.mkfifo(pipe)
    printed, said = run(pipe, TURNS, status=2)
    assert "not a regular file" in said and not printed, (printed, said)


def check_without_build_id(cairn: str, victim: str, tracker: str, trace: Path) -> None:
    bare, other = trace.parent / "victim", trace.with_suffix(".bare")
    subprocess.check_call(["objcopy", "--remove-section", ".note.gnu.build-id", victim, str(bare)])
    record(cairn, str(bare), tracker, other)
    decoder = Decoder(other.read_bytes())
    decoder.intervals()
    says = f"program victim, {bare.stat().st_size} bytes"
    assert decoder.identity.splitlines()[0] == says, decoder.identity


def check_identity(run, cairn: str, victim: str, tracker: str, trace: Path) -> None:
    """A profile of another program, surface or site is refused; one with more pages is noticed."""
    decoder = Decoder(trace.read_bytes())
    intervals = decoder.intervals()
    lines = decoder.identity.splitlines()
    name = Path(victim).name
    assert lines[0].startswith(f"program {name}, build-id ") and lines[1:] == [
        "surface all", "sites wait"], lines  # fmt: skip
    if shutil.which("readelf") and shutil.which("objcopy"):
        notes = subprocess.check_output(["readelf", "-n", victim], text=True)
        assert f"Build ID: {lines[0].split()[-1]}" in notes, (lines, notes)
        check_without_build_id(cairn, victim, tracker, trace)
    made = trace.with_suffix(".made")
    made.write_bytes(encoded(decoder.identity, intervals))
    assert made.read_bytes() == trace.read_bytes(), "encoded here as there"
    # Refused before the program runs: what the command line says.
    for options, says in (
        (["--surface", "program", "--at", "wait"], "'surface all', and this run has 'surface pro"),
        (["--at", "wait/2"], "'sites wait', and this run has 'sites wait/2'"),
        (["--at", "wait", "--recover"], "this run has 'sites wait, recover hold'"),
    ):
        done = subprocess.run(
            [cairn, "run", "--tracker", tracker, *options]
            + ["--strategy", f"oracle:profile={trace}", "--", victim, str(TURNS)],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 2 and not done.stdout, done
        assert says in done.stderr and f"profile {trace}: byte 24:" in done.stderr, done
    # Refused when the session opens: another program. It runs on, without a session.
    other = lines[0].replace("build-id ", "build-id 0")
    made.write_bytes(encoded("\n".join([other, *lines[1:], ""]), intervals))
    _, said = run(made, TURNS)
    assert f"profile {made}: byte 24: recorded with '{other}'" in said, said
    assert '"checkpoints"' not in said and "no checkpoints:" in said, said
    # Pages that the run never writes: more than a few of them are told.
    base = int(subprocess.check_output(["setarch", "-R", victim, "1"], text=True).split()[0], 16)
    more = [pages + [base + (40 + k) * 4096 for k in range(0, 24) if base + (40 + k) * 4096
            not in pages] for pages in intervals]  # fmt: skip
    made.write_bytes(encoded(decoder.identity, more))
    _, said = run(made, TURNS)
    assert "page 0x" in said and "the profile has it, but this run has not changed it" in said, said
    stats = json.loads(said.splitlines()[-1])
    assert "in doubt" in stats["strategy_why"] and stats["undercopied"] < PAGES / 2, stats


def check_bound(cairn: str, victim: str, tracker: str, trace: Path, pages: int) -> None:
    """oracle-count under `cairn run`: as many copies as the recorded run wrote pages, no faults."""
    done = subprocess.run(
        [cairn, "run", "--tracker", tracker, "--at", "wait", "--stats=json"]
        + ["--strategy", f"oracle-count:profile={trace}", "--", victim, str(TURNS)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done
    stats = json.loads(done.stderr.splitlines()[-1])
    assert stats["faults"] == 0 and stats["checkpoints"] == TURNS, stats
    assert stats["tracker"] == "dummy", stats
    assert pages - PAGES <= stats["pages_eager"] <= pages, (stats, pages)


def stats_of(cairn: str, victim: str, tracker: str, strategy: str) -> list[dict]:
    done = subprocess.run(
        [cairn, "run", "--tracker", tracker, "--at", "wait", "--stats=json"]
        + ["--strategy", strategy, "--", victim, str(TURNS)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


def check_undercopied(cairn: str, victim: str, tracker: str) -> None:
    """Plain copy-on-write faults as often whether it is watched or not; stacks are always hot."""
    none, meta = (
        next(s for s in stats_of(cairn, victim, tracker, strategy) if "undercopied" in s)
        for strategy in ("none", "meta")
    )
    # an interval that is scanned may also hold what was written between two looks
    scans = abs(none.get("scans", 0) - meta.get("scans", 0))
    assert abs(none["undercopied"] - meta["undercopied"]) <= TURNS + PAGES * scans, (none, meta)
    assert none["undercopied"] > TURNS * PAGES / 4, none


def check_meta(cairn: str, victim: str, tracker: str) -> None:
    """Scored in a live run, each strategy mispredicts what it would in a replay."""
    lines = stats_of(cairn, victim, tracker, "meta")
    rivals = {line["rival"]: line for line in lines if "rival" in line}
    assert set(rivals) >= {"none", "last", "active-rnd", "active-cks", "gspec", "decay"}, lines
    none, decay = rivals["none"], rivals["decay"]
    assert none["op"] == 0 and none["mp"] == none["up"] > PAGES / 4, none
    assert abs(none["wmp_smc"] - 8 * none["up"]) < 0.1, none
    assert decay["wmp_smc"] < none["wmp_smc"] and decay["own_cycles"] > 0, decay
    assert all(line["intervals"] == TURNS for line in rivals.values()), rivals
    # Prices stand in the summary; those at the end are those that the sums were weighted with.
    stats = next(line for line in lines if "price_fault" in line)
    check_weights(rivals, stats)


def check_weights(rivals: dict[str, dict], stats: dict) -> None:
    """By SMC's weights, and by the prices that are printed with it."""
    assert min(stats[f"price_{k}"] for k in ("fault", "copy", "protect", "open")) > 0, stats
    under = (stats["price_fault"] + stats["price_protect"]) / stats["price_copy"]
    for name, line in rivals.items():
        over = 2.5 if name == "active-cks" else 1
        assert abs(line["wmp_smc"] - over * line["op"] - 8 * line["up"]) < 0.2, line
        by_host = line["op"] + under * line["up"]
        assert abs(line["wmp_host"] - by_host) < 1 + by_host / 50, (line, under)


def check_stat(cairn: str, victim: str, tracker: str) -> None:
    """`cairn stat` has the same of a live run, and in text as well."""
    command = [cairn, "run", "--tracker", tracker, "--at", "wait", "--strategy", "meta"]
    with subprocess.Popen(
        [*command, "--", victim, str(TURNS), "stay"], stdout=subprocess.PIPE
    ) as program:
        try:
            for _ in range(600):
                live = subprocess.run(
                    [cairn, "stat", "--json", str(program.pid)], capture_output=True, text=True
                )
                stats = json.loads(live.stdout) if live.returncode == 0 else {}
                rivals = {line["rival"]: line for line in stats.get("rivals", [])}
                if rivals and rivals["none"]["intervals"] > TURNS:
                    break
                time.sleep(0.05)
            assert rivals["decay"]["own_cycles"] > 0 and rivals["none"]["up"] > 1, stats
            check_weights(rivals, stats)
            text = subprocess.check_output([cairn, "stat", str(program.pid)], text=True)
        finally:
            program.kill()
    for word in ("prices", "a protection", "gspec", "own", "an undercopied one"):
        assert word in text, text


def check_when_histase_predicts(cairn: str, victim: str, tracker: str) -> None:
    """At the fault; or, where none reaches the tracker, for the next interval, which is said."""
    line = next(s for s in stats_of(cairn, victim, tracker, "histase") if "strategy_why" in s)
    late = tracker == "async"
    assert ("next interval" in line["strategy_why"]) == late, line
    assert (line["promotions"] > 0) == late, line


def check_bench(program: str, trace: Path) -> None:
    first, again = (bench(program, "-c", "smc", str(trace)) for _ in range(2))
    assert first.returncode == 0, first.stderr
    lines, others = ([json.loads(s) for s in run.stdout.splitlines()] for run in (first, again))
    for line in lines + others:
        line.pop("own_cycles", None)
    assert lines == others, "not deterministic"
    rows = {line["strategy"]: line for line in lines}
    assert rows["none"]["up"] == rows["none"]["written"]
    assert rows["oracle"]["op"] == 0
    assert all(line["cycles"] >= rows["bound"]["cycles"] for line in lines)
    assert rows["oracle"]["up"] * rows["oracle"]["intervals"] <= PAGES * 4
    data = trace.read_bytes()
    broken = trace.with_suffix(".broken")
    for at in (0, 20, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        got = bench(program, str(broken))
        assert got.returncode == 1 and "byte" in got.stderr, (at, got)
        assert not got.stdout
    pipe = trace.with_suffix(".fifo")
    os.mkfifo(pipe)
    for path in (pipe, trace.parent):
        got = bench(program, str(path))
        assert got.returncode == 1 and "not a regular file" in got.stderr, got
    broken.write_bytes(encoded("", [[4096, 8192], [8192, 4096, 8192]]))
    got = bench(program, str(broken))
    assert got.returncode == 1 and "a page twice (1 intervals" in got.stderr, got
    broken.write_bytes(data[:-3])
    got = bench(program, str(broken))
    assert got.returncode == 1 and "cut short" in got.stderr, got
    assert bench(program, "--cut", "-s", "last", "-c", "smc", str(broken)).returncode == 0


def check_killed(cairn: str, program: str, victim: str, tracker: str, trace: Path) -> None:
    """A killed run leaves all but its last moments, though much less than a buffer of it."""
    command = [cairn, "run", "--tracker", tracker, "--at", "wait", "--trace", str(trace)]
    trace.unlink()
    with subprocess.Popen(
        [*command, "--", victim, "20", "stay"], stdout=subprocess.DEVNULL
    ) as killed:
        try:
            for _ in range(600):
                time.sleep(0.05)
                got = bench(program, "--cut", "-s", "none", "-c", "smc", str(trace))
                lines = [json.loads(line) for line in got.stdout.splitlines()]
                if lines and lines[0]["intervals"] > 20:
                    break
        finally:
            killed.kill()
    assert lines and lines[0]["intervals"] > 20, got
    got = bench(program, str(trace))
    assert got.returncode == 1 and "cut short" in got.stderr, got


def check_errors(program: str) -> None:
    for arguments, says in (
        ((), "no trace"),
        (("/nonexistent",), "/nonexistent"),
        (("-y", "mixd"), "'mixd'"),
        (("-y", "mixed:hat=1"), "'hat'"),
        (("-y", "mixed", "-s", "gspec:mutation=2"), "'mutation=2' is not a number from 0 to 1"),
        (("-y", "mixed", "-s", "gspec:mutatio=0.1"), "'mutatio'; it has individuals"),
        (("-y", "mixed", "-c", "1,2,3"), "'1,2,3'"),
        (("-y", "mixed", "-c", "-1,2,3,4"), "'-1,2,3,4'"),
        (("-y", "mixed", "-c", "4294967297,2,3,4"), "'4294967297,2,3,4'"),
        (("-y", "mixed", "-c", "async:0"), "'async:0'"),
        (("-y", "mixed", "-n", "18446744073709551616"), "'18446744073709551616'"),
        (("-y", "mixed:pages=0", "-n", "20"), "pages: '0' is not a number from 1 to"),
        (("-y", "zipf:pages=0.5", "-n", "20"), "pages: '0.5'"),
        (("-y", "phases:length=0", "-n", "20"), "length: '0'"),
        (("-y", "phases:p=1.5", "-n", "20"), "p: '1.5' is not a number from 0 to 1"),
        (("-y", "periods:longest=0", "-n", "20"), "longest: '0'"),
        (("-y", "stride:pages=0", "-n", "20"), "pages: '0'"),
        (("-y", "stride:runs=-1", "-n", "20"), "runs: '-1'"),
        (("-y", "stride:runs=nan", "-n", "20"), "runs: 'nan'"),
    ):
        got = bench(program, *arguments)
        assert got.returncode in (1, 2) and says in got.stderr, (arguments, got)
    sweep = bench(program, "-y", "mixed", "-n", "200", "-c", "smc", "-s", "active-cks:n=1/5/25")
    names = [json.loads(line)["strategy"] for line in sweep.stdout.splitlines()]
    assert names == [f"active-cks:n={n}" for n in (1, 5, 25)] + ["bound"], names


def main() -> None:
    cairn, program, victim, tracker = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "victim.trace"
        base, _ = record(cairn, victim, tracker, trace)
        check_pages(base, Decoder(trace.read_bytes()).intervals())
        check_bench(program, trace)
        pages = sum(map(len, Decoder(trace.read_bytes()).intervals()))
        check_bound(cairn, victim, tracker, trace, pages)
        record(cairn, victim, tracker, trace, still=True)
        check_oracle(cairn, victim, tracker, trace)
        check_meta(cairn, victim, tracker)
        check_stat(cairn, victim, tracker)
        check_when_histase_predicts(cairn, victim, tracker)
        check_undercopied(cairn, victim, tracker)
        base, _ = record(cairn, victim, tracker, trace, "_exit")
        check_pages(base, Decoder(trace.read_bytes()).intervals())
        check_hot(cairn, victim, tracker, trace)
        check_killed(cairn, program, victim, tracker, trace)
        check_errors(program)


if __name__ == "__main__":
    main()
