#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/run_tests.py and run_case.py say of tests that pass, fail, hang, or do so once."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
RUN_CASE = [sys.executable, str(SOURCE / "tests" / "runner" / "run_case.py")]
LACKING = "echo SKIP: wings; exit 77"


def outcome(*scripts: tuple[str, str, float]) -> tuple[int, list[str]]:
    """Status and lines of the runner over tests of (name, script, time limit in seconds)."""
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        lines = []
        for name, script, limit in scripts:
            command = [*RUN_CASE, "--name", name, "--timeout", str(limit), "--", "sh", "-c"]
            command.append(script.replace("FOLDER", folder))
            words = " ".join(f"[==[{word}]==]" for word in command)
            lines.append(f"add_test({name} {words})")
            lines.append(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)")
        (Path(folder) / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [sys.executable, str(SOURCE / "scripts" / "run_tests.py"), "--build", folder],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        for kept in re.findall(r"^kept: (\S*/cairn-[a-z.-]+\w+)$", done.stdout, re.MULTILINE):
            subprocess.run(["rm", "-r", kept], check=False)
    return done.returncode, done.stdout.splitlines()


def once(what: str) -> str:
    """Only in its first run."""
    return "[ -e FOLDER/mark ] || { touch FOLDER/mark; " + what + "; }"


class Runner(unittest.TestCase):
    def test_pass_and_skip(self) -> None:
        status, lines = outcome(("good", "exit 0", 60), ("lacking", LACKING, 60))
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped, missing wings: 1", lines)

    def test_fail(self) -> None:
        """What is needed to understand it stands at the end, below the names of the skipped."""
        script = "echo seed 7; seq 100; echo last words; exit 1"
        status, lines = outcome(("lacking", LACKING, 60), ("bad", script, 60))
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 1 skipped"))
        self.assertEqual(lines[-2], "failed: bad (failed twice)")
        end = lines[lines.index("skipped, missing wings: 1") :]
        self.assertIn("==== bad: failed twice", end)
        self.assertIn("last words", end)
        self.assertTrue(any(re.search("lines before; seed 7", line) for line in end), end)
        self.assertTrue(any(line.startswith("kept: ") for line in end), end)

    def test_fail_once(self) -> None:
        """It passes alone, and counts as failed all the same."""
        status, lines = outcome(("good", "exit 0", 60), ("rare", once("echo ill luck; exit 1"), 60))
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertEqual(lines[-2], "failed: rare (failed, then passed alone)")
        self.assertIn("ill luck", lines)

    def test_late_once(self) -> None:
        """A time limit is no answer: with three times of it, alone, it may yet pass."""
        script = once("exec sleep 600") + "; [ $CAIRN_TEST_LIMIT_FACTOR = 3 ]"
        status, lines = outcome(("slow", script, 5))
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertEqual(lines[-2], "reached their time limit, then passed alone: 1 (slow)")

    def test_late_then_wrong(self) -> None:
        status, lines = outcome(("bad", once("exec sleep 600") + "; exit 1", 5))
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_late_always(self) -> None:
        status, lines = outcome(("hung", "exec sleep 600", 0.5))
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertTrue(any("FAILED hung: no end after 2 s" in line for line in lines), lines)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
