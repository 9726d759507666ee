#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants one breach of each of tidy.py's rules in an empty tree: each must be seen, and alone."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
import tidy  # noqa: E402

LICENCE = "/* " + tidy.SPDX + " */\n"
HASH_LICENCE = "# " + tidy.SPDX + "\n"

# A small tree without breaches. Each planted file below is added, or replaces one of its
# files.
CLEAN = {
    "CMakeLists.txt": HASH_LICENCE
    + "project(cairn VERSION 1.2.3)\nadd_library(x page.c write.c)\n",
    "CHANGELOG.md": "# Changelog\n\n## [1.2.3]\n",
    "include/cairn/cairn.h": LICENCE
    + '#define CAIRN_VERSION "1.2.3"\nCRN_API int cairn_close(void);\n',
    "src/libcairn.map": LICENCE + "CAIRN {\nglobal:\n\tcairn_close;\nlocal:\n\t*;\n};\n",
    "src/base/bits.h": LICENCE + "#include <stdint.h>\n",
    "src/track/page.c": LICENCE + '#include "base/bits.h"\n#include "cairn/cairn.h"\n',
    "src/os/write.c": LICENCE + "#include <sys/mman.h>\n",
}

PLANTED = {
    "includes": ("src/track/page.c", '#include "base/bits.h"\n#include "journal/journal.h"\n'
                 '#include "cairn/cairn.h"\n'),
    "freestanding": ("src/os/write.c", "#include <stdlib.h>\n"),
    "syscalls": ("src/track/page.c", '#include "base/bits.h"\n#include "cairn/cairn.h"\n'
                 "long x = crn_sys" "0(1);\n"),
    "unique_names": ("tests/page.c", ""),
    "dead_files": ("src/os/forgotten.c", ""),
    "columns": ("src/os/write.c", "/* " + "x" * 100 + " */\n"),
    "text": ("profile", "cairntrc\0"),
    "machine_paths": ("src/os/write.c", "/* /ro" "ot/notes */\n"),
    "todo": ("src/os/write.c", "/* TO" "DO: later */\n"),
    "function_length": ("src/os/write.c", "int f(void)\n{\n" + "\tf();\n" * 70 + "}\n"),
    "file_length": ("src/os/write.c", "\n" * 600),
    "symbol_maps": ("include/cairn/cairn.h", '#define CAIRN_VERSION "1.2.3"\n'
                    "CRN_API int cairn_close(void);\nCRN_API int cairn_new(void);\n"),
    "version": ("include/cairn/cairn.h", '#define CAIRN_VERSION "1.2.4"\n'
                "CRN_API int cairn_close(void);\n"),
}  # fmt: skip


def breaches(files: dict[str, str]) -> dict[str, list[tidy.Breach]]:
    """What each rule that has something to say says about a tree made of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        tree = tidy.Tree(Path(folder))
        found = {rule.__name__.removeprefix("rule_"): list(rule(tree)) for rule in tidy.RULES}
    return {name: lines for name, lines in found.items() if lines}


class Planted(unittest.TestCase):
    def test_clean_tree(self) -> None:
        self.assertEqual(breaches(CLEAN), {})

    def test_each_breach_is_seen(self) -> None:
        for rule, (path, text) in PLANTED.items():
            with self.subTest(rule=rule):
                extra = {"src/journal/journal.h": LICENCE} if rule == "includes" else {}
                self.assertEqual(list(breaches(CLEAN | extra | {path: LICENCE + text})), [rule])

    def test_version_of_the_changelog(self) -> None:
        """Before the first release it names none; a release must be the version of the tree."""
        for text, found in (
            ("\n## [Unreleased]\n", []),
            ("\n## [Unreleased]\n\n## [1.2.2]\n", ["version"]),
            ("\n", ["version"]),
        ):
            changelog = {"CHANGELOG.md": "# Changelog\n" + text}
            self.assertEqual(list(breaches(CLEAN | changelog)), found, text)

    def test_licence(self) -> None:
        self.assertEqual(list(breaches(CLEAN | {"src/os/write.c": "int x;\n"})), ["spdx"])

    def test_every_rule_has_a_plant(self) -> None:
        rules = {rule.__name__.removeprefix("rule_") for rule in tidy.RULES}
        self.assertEqual(rules, set(PLANTED) | {"spdx"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
