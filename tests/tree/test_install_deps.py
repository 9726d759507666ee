#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/install_deps.sh with an apt-get that we wrote in place of the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# Nothing is installed, we are root, and nothing outside the folder is written.
FAKES = {
    "id": "echo 0",
    "dpkg-query": "exit 1",
    "tee": "cat >/dev/null",
    "chmod": ":",
    "rm": 'case "$*" in *policy*) ;; *) exec /bin/rm "$@" ;; esac',
    "sleep": ":",
}
BUSY = "echo 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)' >&2"


def install(fake_apt: str, *options: str, **environment: str) -> tuple[int, str, list[str]]:
    """Status, what it said, and how apt-get was called."""
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls"
        calls.touch()
        apt = f'echo "$*" >>{calls}; count=$(wc -l <{calls}); {fake_apt}'
        for name, text in {**FAKES, "apt-get": apt}.items():
            (Path(folder) / name).write_text(f"#!/bin/sh\n{text}\n")
            (Path(folder) / name).chmod(0o755)
        result = subprocess.run(
            [str(SOURCE / "scripts/install_deps.sh"), *options, "compiler-32"],
            env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        return result.returncode, result.stdout, calls.read_text().splitlines()


class InstallDeps(unittest.TestCase):
    def test_installs(self) -> None:
        status, said, calls = install("exit 0")
        self.assertEqual((status, len(calls)), (0, 1), said)
        self.assertRegex(calls[0], "install .*gcc-multilib")

    def test_old_lists_are_fetched(self) -> None:
        status, said, calls = install('case "$*" in *update*) ;; *) [ $count -gt 1 ] ;; esac')
        self.assertEqual((status, len(calls)), (0, 3), said)
        self.assertIn("update", calls[1])

    def test_another_apt_is_waited_for(self) -> None:
        for command in ("install", "update"):
            with self.subTest(command=command):
                fails = "[ $count -gt 1 ] || exit 100" if command == "update" else ":"
                busy = f"[ $count -gt 5 ] || {{ {BUSY}; exit 100; }}"
                busy = f'case "$*" in *{command}*) {busy} ;; esac'
                status, said, calls = install(f"{fails}; {busy}")
                self.assertEqual(status, 0, said)
                self.assertEqual(said.count("another apt"), 1, said)
                self.assertNotIn("E: Could not", said)
                self.assertGreater(len(calls), 5)

    def test_not_for_ever(self) -> None:
        for options, wanted in (((), 1), (("--optional",), 0)):
            status, said, calls = install(f"{BUSY}; exit 100", *options, CAIRN_APT_WAIT="0")
            self.assertEqual((status, len(calls)), (wanted, 2), said)  # and `update`
            self.assertIn("process 7 (apt)", said)
            self.assertIn("another apt", said)
            self.assertIn("apt-get install gcc-multilib", said)

    def test_what_cannot_be_installed_is_named(self) -> None:
        status, said, calls = install("echo 'E: no such package' >&2; exit 100")
        self.assertEqual(status, 1)
        self.assertIn("E: no such package", said)
        self.assertIn("apt-get could not install: gcc-multilib", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
