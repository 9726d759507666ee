#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A tree that was configured on a bare machine (`make demo`) finds what is installed later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PACKAGES = Path("/var/lib/dpkg/status")
LLVM = [v for v in ("22", "19") if all(shutil.which(f"{x}-{v}") for x in ("clang", "llvm-config"))]


def said(*command: str) -> str:
    done = subprocess.run(
        command, cwd=SOURCE, capture_output=True, text=True, timeout=200, check=True
    )
    return done.stdout


class Configure(unittest.TestCase):
    def test_a_compiler_that_was_missing_is_looked_for_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            lacking = "-DCMAKE_CXX_COMPILER=CMAKE_CXX_COMPILER-NOTFOUND"  # as that cache says it
            out = said("cmake", "-G", "Ninja", "-B", folder, lacking)
        self.assertIn("Looking for a CXX compiler", out)

    @unittest.skipUnless(LLVM, "clang and LLVM's headers, 22 or 19")
    def test_version_of_llvm(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            configure = ("cmake", "-G", "Ninja", "-B", folder)
            for chosen in ("", *LLVM, ""):
                said(*configure, f"-DCAIRN_LLVM={chosen}")
                about = said(f"{folder}/bin/cairn-cc", "--version")
                self.assertIn(f"clang version {chosen or LLVM[0]}.", about)
            with self.assertRaises(subprocess.CalledProcessError) as refused:
                said(*configure, "-DCAIRN_LLVM=20")
        self.assertIn("CAIRN_LLVM=20: no clang and lld of that version", refused.exception.stderr)

    @unittest.skipUnless(PACKAGES.exists(), "Debian's list of packages")
    def test_new_packages_configure_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            configured = Path(folder) / "build.ninja"
            configured.touch()
            ask = ("make", "-n", f"BUILD={folder}", "build")
            self.assertNotIn(f"-B {folder}", said(*ask))
            before = PACKAGES.stat().st_mtime - 1
            os.utime(configured, (before, before))
            self.assertIn(f"-B {folder}", said(*ask))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
