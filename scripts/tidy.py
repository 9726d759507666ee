#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The laws of the tree that a person forgets: one line per breach, exit 1 if there are any.

    tidy.py [--root DIR] [--rules]

Runs in `make check`, in `make lint` and as a test. Each rule is one function below; `--rules`
prints their docstrings. A limit that the tree does not keep yet is a ratchet: RATCHET holds today's
count, which may only go down.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

COLUMNS_MAX = 100
DRAWING_COLUMNS_MAX = 120
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# How many breaches of a soft limit the tree has today. Lower them; never raise them.
RATCHET = {"function_length": 0, "file_length": 0}

# Who may include what (docs/ARCHITECTURE.md, "Includes point one way"). `cairn` is include/cairn/.
CORE = {"base", "os", "track", "speculate", "journal", "session", "rt"}
LAW: dict[str, set[str]] = {
    "cairn": {"cairn"},
    "base": {"base", "cairn"},
    "os": {"base", "os", "cairn"},
    "rt": {"base", "os", "rt", "cairn"},
    "track": {"base", "os", "rt", "track", "cairn"},
    "speculate": {"speculate"},
    "journal": {"base", "os", "journal", "cairn"},
    "session": CORE | {"cairn"},
    "preload": {"base", "os", "session", "preload", "cairn"},
    "cli": {"base", "os", "session", "rt", "preload", "cli", "cairn"},
    "tests": CORE | {"preload", "cli", "tests", "cairn"},
    "bench": CORE | {"cli", "bench", "cairn"},
    "examples": {"examples", "cairn"},
}

# The core is freestanding: of the system's headers only those that declare types and constants.
# uio.h comes with cairn.h. In os/, which talks to the kernel, the kernel's are allowed too.
FREESTANDING = {
    "errno.h", "limits.h", "signal.h", "stdalign.h", "stdarg.h", "stdatomic.h", "stdbool.h",
    "stddef.h", "stdint.h", "cpuid.h", "sys/uio.h",
}  # fmt: skip
KERNEL = re.compile(
    r"^(linux|asm|sys)/|^(elf|fcntl|link|poll|sched|signal|time|ucontext|unistd)\.h$"
)

# Wrappers stand in for libc's functions, in the program's context: they know its types.
LIBC_SIDE = ("wrap", "landing", "reach")

# Where people and machines have their folders.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(home|root|work)/")

SPDX = "SPDX-License-Identifier: MIT"
SPDX_SUFFIXES = {
    ".c", ".h", ".S", ".py", ".sh", ".def", ".map", ".cmake", ".lua", ".1", ".3", ".7",
}  # fmt: skip
SPDX_NAMES = {"CMakeLists.txt", "Makefile", "run"}
CODE_SUFFIXES = {".c", ".h", ".S", ".py", ".sh", ".def"}

# The same name in many folders says what the file is.
NAMES_SHARED = {"README.md", "CMakeLists.txt", ".gitignore", "__init__.py", "__main__.py"}
NAME_SNAKE = re.compile(r"^[a-z0-9_]+([-.][a-z0-9_]+)*(\.S)?$")
NAMES_CUSTOM = {
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "TESTING.md", "LICENSE", "Makefile",
    "CMakeLists.txt", "CMakePresets.json", "ARCHITECTURE.md", "HACKING.md", "STYLE.md",
}  # fmt: skip

Breach = tuple[str, int, str]


class Tree:
    """The files that git knows, or would know after `git add`; all files where there is no git."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def files(self) -> list[Path]:
        command = ["git", "-C", str(self.root), "ls-files", "-co", "--exclude-standard", "-z"]
        try:
            listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
            paths = [Path(p) for p in listed.split("\0") if p]
        except (OSError, subprocess.CalledProcessError):
            paths = [
                (Path(base) / name).relative_to(self.root)
                for base, folders, names in os.walk(self.root)
                for name in names
                if not any(part.startswith("build") for part in Path(base).parts)
            ]
        return sorted({p for p in paths if (self.root / p).is_file()})

    def with_suffix(self, *suffixes: str) -> list[Path]:
        return [p for p in self.files if p.suffix in suffixes]

    def lines(self, path: Path) -> list[str]:
        return (self.root / path).read_text(encoding="utf-8", errors="replace").splitlines()

    def text(self, path: Path) -> str:
        return (self.root / path).read_text(encoding="utf-8", errors="replace")


def folder(path: Path) -> str | None:
    """The folder that a file belongs to: the key of LAW."""
    parts = path.parts
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[0] == "include":
        return "cairn"
    return parts[0] if parts[0] in LAW and len(parts) > 1 else None


def folder_of_include(tree: Tree, includer: Path, name: str) -> str | None:
    """Where `#include "name"` lands, looking where the compiler does."""
    for base in (includer.parent, Path("src"), Path("include"), Path("preload"), Path("cli")):
        path = Path(os.path.normpath(base / name))
        if (tree.root / path).is_file():
            return folder(path)
    return None


def rule_includes(tree: Tree) -> Iterator[Breach]:
    """Includes point left: base, os, {track, speculate, journal}, session, {preload, cli}."""
    pattern = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
    for path in tree.with_suffix(".c", ".h", ".S"):
        here = folder(path)
        if here is None:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            match = pattern.match(line)
            if not match:
                continue
            there = folder_of_include(tree, path, match[1])
            if there is None:
                yield str(path), number, f'"{match[1]}" is not found in any folder'
            elif there not in LAW.get(here, set()):
                yield str(path), number, f"{here} may not include {there} ({match[1]})"


def rule_freestanding(tree: Tree) -> Iterator[Breach]:
    """The core uses no libc: only headers of types; headers of the kernel only in src/os."""
    pattern = re.compile(r"^\s*#\s*include\s+<([^>]+)>")
    for path in tree.with_suffix(".c", ".h"):
        here = folder(path)
        if here not in CORE or path.name.startswith(LIBC_SIDE):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            match = pattern.match(line)
            if not match or match[1] in FREESTANDING:
                continue
            if here == "os" and KERNEL.search(match[1]):
                continue
            yield str(path), number, f"<{match[1]}> in the freestanding core ({here})"


def rule_syscalls(tree: Tree) -> Iterator[Breach]:
    """Only src/os (and the agent, which passes the program's calls on) makes system calls."""
    pattern = re.compile(r"\bcrn_sys[0-6]\(|os/sys\.h")
    for path in tree.with_suffix(".c", ".h"):
        if folder(path) not in CORE - {"os"}:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if pattern.search(line):
                yield str(path), number, "a system call outside src/os"


def rule_unique_names(tree: Tree) -> Iterator[Breach]:
    """File names are snake_case and unique in the repository."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path in tree.files:
        if path.name in NAMES_SHARED:
            continue
        places[path.name].append(path)
        plain = path.name.lstrip(".")
        if path.name not in NAMES_CUSTOM and not NAME_SNAKE.match(plain):
            yield str(path), 1, "file name is not snake_case"
    for paths in places.values():
        for path in paths[1:]:
            yield str(path), 1, f"same file name as {paths[0]}"


def rule_spdx(tree: Tree) -> Iterator[Breach]:
    """The licence is on the first line (the second after #!)."""
    for path in tree.files:
        if path.suffix not in SPDX_SUFFIXES and path.name not in SPDX_NAMES:
            continue
        head = [line for line in tree.lines(path)[:2] if not line.startswith("#!")][:1]
        if not head or SPDX not in head[0]:
            yield str(path), 1, f"no `{SPDX}` on the first line"


def listed(stem: str, builders: str) -> bool:
    """Whether a list names the file: whole, or as PREFIX_${name} of a foreach()."""

    def word(text: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", builders) is not None

    cuts = [i for i, letter in enumerate(stem) if letter == "_"]
    return word(stem) or any(
        stem[: cut + 1] + "${" in builders and word(stem[cut + 1 :]) for cut in cuts
    )


def rule_dead_files(tree: Tree) -> Iterator[Breach]:
    """Every source is in a CMakeLists.txt or a script; every header is included somewhere."""
    lists = [p for p in tree.files if p.name == "CMakeLists.txt"]
    builders = "\n".join(tree.text(p) for p in lists + tree.with_suffix(".cmake", ".py", ".sh"))
    code = "\n".join(
        tree.text(p) for p in tree.with_suffix(".c", ".cpp", ".h", ".S", ".def", ".py")
    )
    for path in tree.with_suffix(".c", ".S"):
        if f"{path.parent.name}/*{path.suffix}" not in builders and not listed(path.stem, builders):
            yield str(path), 1, "not in any CMakeLists.txt: dead"
    for path in tree.with_suffix(".h", ".def"):
        if not re.search(rf'[/"<]{re.escape(path.name)}[">]', code):
            yield str(path), 1, "nobody includes it: dead"


def rule_columns(tree: Tree) -> Iterator[Breach]:
    """Lines end by column 100 (tabs of 8; drawings in comments by 120), without trailing blanks."""
    drawing = re.compile(r"^\s*\*\t|.*# type: ignore")
    for path in tree.with_suffix(*CODE_SUFFIXES):
        for number, line in enumerate(tree.lines(path), 1):
            width = len(line.expandtabs(8))
            if width > (DRAWING_COLUMNS_MAX if drawing.match(line) else COLUMNS_MAX):
                yield str(path), number, f"{width} columns"
            if line != line.rstrip():
                yield str(path), number, "trailing blank"


def rule_text(tree: Tree) -> Iterator[Breach]:
    """Every file is text: what programs write (traces, profiles, objects) stays out."""
    for path in tree.files:
        if b"\0" in (tree.root / path).read_bytes():
            yield str(path), 1, "not text"


def rule_machine_paths(tree: Tree) -> Iterator[Breach]:
    """No file names a path of the machine that it was written on."""
    for path in tree.files:
        for number, line in enumerate(tree.lines(path), 1):
            if MACHINE_PATHS.search(line):
                yield str(path), number, "a path of somebody's machine"


def rule_todo(tree: Tree) -> Iterator[Breach]:
    """TODO and FIXME only with an issue number: TODO(#12)."""
    word = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))")
    for path in tree.with_suffix(*CODE_SUFFIXES):
        for number, line in enumerate(tree.lines(path), 1):
            if word.search(line) and path.name != Path(__file__).name:
                yield str(path), number, "no issue number"


def functions(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First line and length of each function body: `{` and `}` alone in column 0."""
    begin = 0
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            yield begin, number - begin + 1
            begin = 0


def rule_function_length(tree: Tree) -> Iterator[Breach]:
    """A function fits a screen: 70 lines."""
    for path in tree.with_suffix(".c", ".h"):
        for begin, length in functions(tree.lines(path)):
            if length > FUNCTION_LINES_MAX:
                yield str(path), begin, f"function of {length} lines"


def rule_file_length(tree: Tree) -> Iterator[Breach]:
    """A file stays below 600 lines; split it by noun."""
    for path in tree.with_suffix(".c", ".h", ".py"):
        length = len(tree.lines(path))
        if length > FILE_LINES_MAX:
            yield str(path), 1, f"file of {length} lines"


def rule_symbol_maps(tree: Tree) -> Iterator[Breach]:
    """The symbol map exports exactly what cairn.h declares."""
    header, symbols = Path("include/cairn/cairn.h"), Path("src/libcairn.map")
    if header not in tree.files or symbols not in tree.files:
        return
    plain = re.sub(r"/\*.*?\*/", "", tree.text(header), flags=re.S)
    api = "\n".join(re.findall(r"CRN_API[^;]*;", plain))
    declared = set(re.findall(r"\b(cairn_\w+)\s*\(", api))
    exported = set(re.findall(r"^\s*(cairn_\w+);", tree.text(symbols), flags=re.M))
    for name in sorted(declared - exported):
        yield str(symbols), 1, f"{name} is declared but not exported"
    for name in sorted(exported - declared):
        yield str(symbols), 1, f"{name} is exported but not declared"


def rule_version(tree: Tree) -> Iterator[Breach]:
    """CMake, cairn.h and the newest release in CHANGELOG.md, if any, name the same version."""
    places = {
        "CMakeLists.txt": r"project\(cairn VERSION ([\d.]+)",
        "include/cairn/cairn.h": r'#define CAIRN_VERSION "([\d.]+)"',
        "CHANGELOG.md": r"^## \[(\d+\.\d+\.\d+)\]",
    }
    found: dict[str, str] = {}
    for name, pattern in places.items():
        if Path(name) not in tree.files:
            continue
        match = re.search(pattern, tree.text(Path(name)), flags=re.M)
        if not match and "\n## [Unreleased]\n" in tree.text(Path(name)):
            continue  # before the first release
        found[name] = match[1] if match else "none"
    for name, version in found.items():
        if version != found["CMakeLists.txt"]:
            yield name, 1, f"version {version}, but CMakeLists.txt says {found['CMakeLists.txt']}"


RULES: list[Callable[[Tree], Iterator[Breach]]] = [
    rule_includes,
    rule_freestanding,
    rule_syscalls,
    rule_unique_names,
    rule_spdx,
    rule_dead_files,
    rule_columns,
    rule_text,
    rule_machine_paths,
    rule_todo,
    rule_function_length,
    rule_file_length,
    rule_symbol_maps,
    rule_version,
]


def check(tree: Tree) -> int:
    """Print every breach beyond the ratchets; the number of those."""
    total = 0
    for rule in RULES:
        breaches = list(rule(tree))
        name = rule.__name__.removeprefix("rule_")
        allowed = RATCHET.get(name, 0)
        if len(breaches) <= allowed:
            if len(breaches) < allowed:
                print(f"tidy: {name}: {len(breaches)} now; lower the ratchet from {allowed}")
            continue
        for path, number, text in breaches:
            print(f"{path}:{number}: {text} [{name}]")
        total += len(breaches) - allowed
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="The laws of the tree that a person forgets.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--rules", action="store_true", help="list the rules and leave")
    args = parser.parse_args()
    if args.rules:
        for rule in RULES:
            print(f"{rule.__name__.removeprefix('rule_'):18} {rule.__doc__}")
        return 0
    tree = Tree(args.root)
    total = check(tree)
    print(f"tidy: {len(tree.files)} files, {total} breaches")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
