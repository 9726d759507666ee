#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The last line and the status of .ci/run, with a `make` that we wrote in place of the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]


def ci_run(fake_make: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        make = Path(folder) / "make"
        make.write_text("#!/bin/sh\n" + fake_make)
        make.chmod(0o755)
        result = subprocess.run(
            [str(SOURCE / ".ci/run")],
            env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    return result.returncode, result.stdout.splitlines()[-1]


class CiRun(unittest.TestCase):
    def test_pass(self) -> None:
        fake = "[ $1 = test ] && echo '12 passed, 0 failed, 3 skipped'; echo noise >&2"
        self.assertEqual(ci_run(fake), (0, "12 passed, 0 failed, 3 skipped"))

    def test_fail(self) -> None:
        fake = "echo '12 passed, 1 failed, 3 skipped'; echo 'make: Error 1' >&2; exit 2"
        self.assertEqual(ci_run(fake), (2, "12 passed, 1 failed, 3 skipped"))

    def test_broken_before_the_first_test(self) -> None:
        self.assertEqual(ci_run("echo no compiler; exit 2"), (2, "0 passed, 1 failed, 0 skipped"))

    def test_no_totals_are_a_failure(self) -> None:
        self.assertEqual(ci_run("echo all is well"), (1, "0 passed, 1 failed, 0 skipped"))

    def test_nobody_can_be_asked(self) -> None:
        fake = "[ ! -t 0 ] && [ \"$CI\" = true ] && read x || echo '1 passed, 0 failed, 0 skipped'"
        self.assertEqual(ci_run(fake), (0, "1 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
