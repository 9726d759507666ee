# SPDX-License-Identifier: MIT
"""
What the tests in this folder share: the arguments, the modes, skipping, and saying what failed.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "servers"))

from servers import PATIENCE, Server, figures, search_path  # noqa: E402

SKIP = 77

# How a program is put under Cairn, by name: the options of `cairn run`.
MODES: dict[str, list[str]] = {
    "none": [],
    "wait": ["--at", "wait"],
    "recover": ["--at", "wait", "--recover"],
    "recover_uffd": ["--at", "wait", "--recover", "--tracker", "uffd"],
    "recover_mprotect": ["--at", "wait", "--recover", "--tracker", "mprotect"],
    "output": ["--at", "output"],
    "async": ["--at", "wait", "--tracker", "async"],
    "uffd": ["--at", "wait", "--tracker", "uffd"],
    "mprotect": ["--at", "wait", "--tracker", "mprotect"],
    "fork": ["--at", "wait/10", "--tracker", "fork"],
    "decay": ["--at", "wait", "--recover", "--tracker", "uffd", "--strategy", "decay"],
    "gspec": ["--at", "wait", "--tracker", "mprotect", "--strategy", "gspec"],
    "program": ["--at", "wait", "--tracker", "mprotect", "--surface", "program"]
    + ["--strategy", "decay"],
    "keep": ["--at", "wait", "--keep", "100"],
}


class Failed(Exception):
    """An expectation that did not hold."""


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Failed(text)
    print(f"ok    {text}", flush=True)


def skip(why: str) -> None:
    print(f"SKIP: {why}")
    raise SystemExit(SKIP)


def need_program(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program, path=search_path()):
            skip(f"{program} is not installed")


def cairn_run(build: Path, mode: str) -> list[str]:
    """The command that a program is put behind."""
    return [str(build / "bin" / "cairn"), "run", *MODES[mode], "--"]


def expect_checkpoints(
    build: Path, mode: str, server: Server, load: Callable[[], object], more_than: int = 20
) -> None:
    """
    The program was really checkpointed, by the tracker that was asked for, and none failed. On a
    busy machine one wake-up serves many requests: it gets more load until there were enough.
    """
    if mode == "none":
        return
    for _ in range(20):
        found = figures(build, server)
        if found.get("checkpoints", 0) > more_than:
            break
        load()
    expect(found.get("checkpoints", 0) > more_than, f"checkpoints: {found.get('checkpoints')}")
    expect(found.get("failed") == 0, f"failed checkpoints: {found.get('failed')}")
    if "--tracker" in MODES[mode]:
        wanted = MODES[mode][MODES[mode].index("--tracker") + 1]
        expect(found.get("tracker") == wanted, f"tracker: {found.get('tracker')}")


def crash(port: int, magic: bytes) -> str:
    """What the sender of the magic bytes sees."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as s:
        s.sendall(magic)
        try:
            return f"{len(s.recv(100))} bytes"
        except ConnectionResetError:
            return "reset"


@contextmanager
def side_by_side(bare: Server, cairn: Server) -> Iterator[None]:
    """Both run meanwhile, and leave with the same exit status."""
    try:
        bare.start()
        cairn.start()
        yield
        expected, got = bare.stop(), cairn.stop()
        expect(expected == got, f"exit status {got}, bare {expected}")
    except Exception as error:
        raise Failed(f"{error}\n{cairn.tail()}") from error
    finally:
        bare.stop()
        cairn.stop()


def main(test: Callable[[Path, str, Path], None]) -> None:
    """test(build, mode, folder): raises Failed, or calls skip()."""
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("mode", nargs="?", choices=MODES, default="wait")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cairn-test-"))
    folder.chmod(0o755)
    try:
        test(arguments.build.resolve(), arguments.mode, folder)
    except Exception as error:  # noqa: BLE001 (everything that goes wrong is a failure)
        print(f"FAIL  {type(error).__name__}: {error}")
        print(f"the folder is kept: {folder}")
        print(f"again: {' '.join([sys.executable, *sys.argv])}")
        sys.exit(1)
    except SystemExit:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0)
