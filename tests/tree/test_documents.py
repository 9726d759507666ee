#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the documents promise is so: links, make targets, the README's program, man pages.

argv: the build tree.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build")
README_LINES_MAX = 60


def pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(SOURCE), "ls-files", "-co", "--exclude-standard", "*.md"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    found = [SOURCE / name for name in listed] or [
        *SOURCE.glob("*.md"),
        *(SOURCE / "docs").glob("*.md"),
    ]
    return [path for path in found if path.exists()]


class Documents(unittest.TestCase):
    def test_required(self) -> None:
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "TESTING.md",
            "LICENSE",
            "docs/ARCHITECTURE.md",
            "docs/HACKING.md",
            "docs/STYLE.md",
        ):
            self.assertTrue((SOURCE / name).is_file(), name)

    def test_links_lead_somewhere(self) -> None:
        for page in pages():
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
                if "://" not in target:
                    self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_files_that_are_named_exist(self) -> None:
        folders = ("src", "include", "preload", "cli", "compiler", "examples", "bench", "tests",
                   "scripts")  # fmt: skip
        names = {path.name for folder in folders for path in (SOURCE / folder).rglob("*.*")}
        pattern = r"`(?:[\w-]+/)*([a-z][\w-]*\.(?:[chS]|cpp|py|sh|def|map))`"
        for page in pages():
            for name in re.findall(pattern, page.read_text()):
                self.assertIn(name, names, page.name)

    def test_make_targets_exist(self) -> None:
        targets = set(re.findall(r"^([a-z-]+):", (SOURCE / "Makefile").read_text(), re.M))
        for page in pages():
            for name in re.findall(r"(?:^|`|&& )make ([a-z-]+)", page.read_text(), re.M):
                self.assertIn(name, targets, page.name)

    def test_folders_have_short_readmes(self) -> None:
        for folder in ("src", "preload", "cli", "examples", "bench", "tests", "scripts", "docs"):
            page = SOURCE / folder / "README.md"
            self.assertTrue(page.is_file(), page)
            self.assertLessEqual(len(page.read_text().splitlines()), README_LINES_MAX, page)

    def test_program_of_the_readme(self) -> None:
        blocks = re.findall(r"```c\n(.*?)```", (SOURCE / "README.md").read_text(), re.S)
        self.assertEqual(len(blocks), 1)
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder) / "program.c", Path(folder) / "program"
            source.write_text(blocks[0])
            subprocess.run(
                ["cc", "-O2", "-Wall", "-Werror", f"-I{SOURCE / 'include'}", str(source)]
                + [str(BUILD / "lib/libcairn.a"), "-o", str(program)],
                check=True,
            )
            result = subprocess.run(
                [str(program)], capture_output=True, text=True, timeout=200, check=False
            )
        self.assertEqual(
            (result.returncode, result.stdout), (0, "back: arena[42] is 1 again\n"), result.stderr
        )

    def test_every_function_has_a_manual_page(self) -> None:
        header = (SOURCE / "include/cairn/cairn.h").read_text()
        header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
        api = "\n".join(re.findall(r"CRN_API[^;]*;", header))
        names = set(re.findall(r"\b(cairn_\w+)\s*\(", api))
        described: set[str] = set()
        for page in (SOURCE / "docs/man").glob("*.3"):
            match = re.search(r"^\.SH NAME\n(.*) \\-", page.read_text(), re.M)
            assert match, page
            described |= set(match[1].split(", "))
        self.assertEqual(names - described, set())
        self.assertEqual(described - names, {"cairn"})

    def test_every_error_is_in_the_manual(self) -> None:
        header = (SOURCE / "include/cairn/cairn.h").read_text()
        manual = (SOURCE / "docs/man/cairn.3").read_text()
        for name in re.findall(r"^\t(CAIRN_E\w+) = -4", header, re.M):
            self.assertIn(f".B {name}\n", manual)

    def test_every_option_is_in_the_manual(self) -> None:
        for command in ("cairn run", "cairn doctor", "cairn profile", "cairn stat", "cairn-bench"):
            program, *rest = command.split()
            shown = subprocess.run(
                [str(BUILD / "bin" / program), *rest, "--help"],
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            ).stdout
            page = SOURCE / f"docs/man/{command.replace(' ', '-')}.1"
            manual = page.read_text().replace("\\-", "-")
            options = set(re.findall(r"(?m)^ .*?(--[a-z][a-z-]+)", shown))
            self.assertTrue(options, command)
            for option in options:
                self.assertIn(option, manual, command)
            section = manual.split(".SH OPTIONS\n")[1].split("\n.SH ")[0]
            for option in set(re.findall(r"^\.BR? .*?(--[a-z][a-z-]+)", section, re.M)):
                self.assertIn(option, shown, f"{command} has no {option}")

    @unittest.skipUnless(shutil.which("man"), "no man")
    def test_manual_pages_are_clean(self) -> None:
        for page in sorted((SOURCE / "docs/man").glob("*.[137]")):
            result = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            self.assertEqual((result.returncode, result.stderr), (0, ""), page)

    def test_changelog_has_the_version_on_top(self) -> None:
        heads = re.findall(r"^## \[([^\]]+)\]", (SOURCE / "CHANGELOG.md").read_text(), re.M)
        self.assertEqual(heads[0], "Unreleased")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
