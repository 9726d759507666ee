#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An installed copy works alone: files, pkg-config, libraries, agent. argv: the build tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build")

PROGRAM = """
#include <cairn/cairn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	puts(cairn_strerror(CAIRN_ENOCKPT));
	return strcmp(cairn_version(), CAIRN_VERSION) != 0;
}
"""


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=200, **options)


class Installed(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]
    prefix: Path

    @classmethod
    def setUpClass(cls) -> None:
        # Installed, then moved: nothing may remember where it was put.
        cls.folder = tempfile.TemporaryDirectory()
        first = Path(cls.folder.name) / "first"
        cls.prefix = Path(cls.folder.name) / "moved"
        run("cmake", "--install", str(BUILD), "--prefix", str(first), check=True)
        first.rename(cls.prefix)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def test_files(self) -> None:
        for name in (
            "bin/cairn",
            "include/cairn/cairn.h",
            "lib/libcairn.a",
            "lib/libcairn.so",
            "lib/libcairn-agent.so",
            "lib/pkgconfig/cairn.pc",
            "share/man/man1/cairn.1",
            "share/man/man3/cairn.3",
            "share/man/man7/cairn.7",
        ):
            self.assertTrue((self.prefix / name).exists(), name)

    def test_nothing_names_the_build_tree(self) -> None:
        for path in self.prefix.rglob("*"):
            if path.is_file() and (path.suffix in (".pc", ".h") or "man" in path.parts):
                self.assertNotIn(str(SOURCE), path.read_text(), path)

    def compile(self, *extra: str) -> Path:
        environment = os.environ | {"PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "cairn", env=environment, check=True)
        source, program = self.prefix / "program.c", self.prefix / "program"
        source.write_text(PROGRAM)
        libraries = flags.stdout.split()
        command = ["cc", "-std=c11", "-Wall", "-Werror", *extra, str(source), "-o", str(program)]
        result = run(*command, *libraries)
        self.assertEqual(result.returncode, 0, result.stderr)
        return program

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_shared_library(self) -> None:
        environment = os.environ | {"LD_LIBRARY_PATH": str(self.prefix / "lib")}
        result = run(str(self.compile()), env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ENOCKPT", result.stdout)

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_static_library(self) -> None:
        result = run(str(self.compile("-static")))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ENOCKPT", result.stdout)

    def test_command(self) -> None:
        cairn = str(self.prefix / "bin/cairn")
        self.assertEqual(run(cairn, "--version").returncode, 0)
        result = run(cairn, "run", "--", "/bin/sh", "-c", "echo hello; exit 7")
        self.assertEqual((result.returncode, result.stdout), (7, "hello\n"), result.stderr)


class Uninstalled(unittest.TestCase):
    """`make uninstall` takes back what `make install` has put there, wherever that was."""

    def test_what_was_installed_goes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            there, other = Path(folder) / "there", Path(folder) / "other"
            make = ("make", "-s", "-o", "build", "-C", str(SOURCE), f"BUILD={BUILD}",
                    "PREFIX=/usr", f"INSTALLED={folder}/list")  # fmt: skip
            self.assertNotEqual(run(*make, "uninstall").returncode, 0)
            run(*make, f"DESTDIR={there}", "install", check=True)
            self.assertTrue((there / "usr/bin/cairn").exists())
            run("cmake", "--install", str(BUILD), "--prefix", str(other), check=True)
            (there / "usr/bin/another").touch()
            result = run(*make, "uninstall")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            left = [path for path in there.rglob("*") if not path.is_dir()]
            self.assertEqual(left, [there / "usr/bin/another"])
            self.assertEqual(list(there.rglob("cairn*")), [])
            self.assertTrue((there / "usr/include").exists())  # may not be ours
            self.assertTrue((other / "bin/cairn").exists())
            self.assertNotEqual(run(*make, "uninstall").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
