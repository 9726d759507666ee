#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The fronts of `cairn` and `cairn-bench`: help, version, exit statuses. argv: the build tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build")
COMMANDS = ("run", "doctor", "profile", "stat")


def cairn(*args: str) -> subprocess.CompletedProcess[str]:
    command = [str(BUILD / "bin" / "cairn"), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    command = [str(BUILD / "bin" / "cairn-bench"), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


class CommandLine(unittest.TestCase):
    def test_help_names_every_command(self) -> None:
        result = cairn("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for name in COMMANDS:
            self.assertRegex(result.stdout, rf"(?m)^  {name}\s+\w")
        self.assertEqual(cairn("help").stdout, result.stdout)
        self.assertEqual(cairn("-h").stdout, result.stdout)

    def test_version_is_that_of_the_header(self) -> None:
        header = (SOURCE / "include/cairn/cairn.h").read_text()
        version = re.search(r'#define CAIRN_VERSION "([^"]+)"', header)
        assert version
        self.assertEqual(cairn("--version").stdout, f"cairn {version[1]}\n")
        self.assertEqual(cairn("-V").stdout, f"cairn {version[1]}\n")

    def test_nothing_to_do_is_a_usage_error(self) -> None:
        result = cairn()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("Usage:", result.stderr)

    def test_unknown_command_and_option(self) -> None:
        for args, name in ((["fly"], "fly"), (["help", "fly"], "fly"), (["--fly"], "--fly")):
            result = cairn(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            self.assertIn(name, result.stderr.splitlines()[0])

    def test_each_command_has_help_of_its_own(self) -> None:
        for name in COMMANDS:
            with self.subTest(command=name):
                result = cairn(name, "--help")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"cairn {name}", result.stdout)
                self.assertEqual(cairn("help", name).stdout, result.stdout)

    def test_each_command_refuses_an_unknown_option(self) -> None:
        for name in COMMANDS:
            with self.subTest(command=name):
                result = cairn(name, "--no-such-option")
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn("no-such-option", result.stderr)

    def test_output_that_does_not_arrive_is_a_failure(self) -> None:
        words = "cannot write to standard output: "
        for command in (["cairn", "--help"], ["cairn", "help", "run"], ["cairn", "--version"],
                        ["cairn", "stat", "--help"], ["cairn", "doctor"],
                        ["cairn", "profile", "--", "true"], ["cairn-bench", "--list"],
                        ["cairn-bench", "--synthetic=mixed", "--intervals=99"]):  # fmt: skip
            line = f'exec "{BUILD}/bin/{command[0]}" {" ".join(command[1:])}'
            for to, why in ((">/dev/full", "No space left"), (">&-", "Bad file descriptor")):
                with self.subTest(command=command, to=to):
                    result = subprocess.run(["sh", "-c", f"{line} {to}"], capture_output=True,
                                            text=True, timeout=200, check=False)  # fmt: skip
                    self.assertEqual((result.returncode, result.stdout), (1, ""))
                    self.assertIn(words + why, result.stderr)

    def test_no_output_needs_no_standard_output(self) -> None:
        for arguments, status in ((["run", "--", "true"], 0), (["run", "--", "false"], 1)):
            line = f'exec "{BUILD}/bin/cairn" {" ".join(arguments)} >&-'
            result = subprocess.run(["sh", "-c", line], capture_output=True, text=True,
                                    timeout=200, check=False)  # fmt: skip
            self.assertEqual((result.returncode, result.stderr), (status, ""))

    def test_stat_ends_when_it_can_no_longer_print(self) -> None:
        ready = "import select; select.select([], [], [], 0.01); print(flush=True); open(0).read()"
        run = [str(BUILD / "bin" / "cairn"), "run", "--at=wait", "--", sys.executable, "-c", ready]
        with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdout and program.stdin
            program.stdout.readline()
            with open("/dev/full", "w", encoding="ascii") as full:
                command = [str(BUILD / "bin" / "cairn"), "stat", "-i", "0.01", str(program.pid)]
                result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True,
                                        timeout=60, check=False)  # fmt: skip
            program.stdin.close()
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot write to standard output", result.stderr)

    def test_help_of_help(self) -> None:
        self.assertEqual(cairn("help", "--help").stdout, cairn("--help").stdout)

    def test_bench_tells_help_from_mistakes(self) -> None:
        for args in (["--help"], ["-h"]):
            result = bench(*args)
            self.assertEqual((result.returncode, result.stderr), (0, ""), args)
            self.assertIn("Usage: cairn-bench", result.stdout)
        for args in (["--fly"], ["-x"], ["--seed"], []):
            result = bench(*args)
            self.assertEqual((result.returncode, result.stdout), (2, ""), args)
            self.assertIn("--help", result.stderr)

    def test_stat_says_what_is_wrong(self) -> None:
        for arguments, status, words in (
            (["4294967297"], 2, "not a process id"),
            (["0"], 2, "not a process id"),
            (["1x"], 2, "not a process id"),
            (["-i", "inf", "1"], 2, "not a number of seconds"),
            (["-i", "0", "1"], 2, "not a number of seconds"),
            (["2147483647"], 1, "there is no process 2147483647"),
            (["1", "2"], 2, "one process at a time"),
            ([str(os.getpid())], 1, "it does not run under `cairn run`"),
        ):
            with self.subTest(arguments=arguments):
                result = cairn("stat", *arguments)
                self.assertEqual((result.returncode, result.stdout), (status, ""))
                self.assertIn(words, result.stderr)

    @unittest.skipIf(os.geteuid(), "somebody else's process")
    def test_stat_of_somebody_else(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # the build may be where nobody else may look
            copy = shutil.copy(BUILD / "bin" / "cairn", folder)
            result = subprocess.run([copy, "stat", str(os.getpid())], user=65534, group=65534,
                                    extra_groups=[], cwd="/", capture_output=True, text=True,
                                    timeout=200, check=False)  # fmt: skip
        self.assertEqual(result.returncode, 1)
        self.assertIn("Permission denied: ask as its user", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
