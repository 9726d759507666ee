# SPDX-License-Identifier: MIT
"""The files of a link: which are meant, what is native in them, which LLVM wrote their bitcode."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SYSTEM_DIRS = ("/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib",
               "/lib32", "/usr/lib32")  # fmt: skip
# Words by which code with hooks says what it was made for (src/rt/abi.h).
MADE_FOR = re.compile(rb"__cairn_abi_([a-z]+_?\w*)\0")
# What begins an interval: code that is linked without bitcode and names one of these may do so.
BEGINS = (b"cairn_checkpoint", b"cairn_rewind", b"cairn_open", b"cairn_close", b"cairn_resume",
          b"__cairn_site")  # fmt: skip
BITCODE_BEGINS = b"BC\xc0\xde"
# How it begins, in a file or a member of an archive, up to who wrote it.
BITCODE = re.compile(rb"(?:\A|`\n)BC\xc0\xde5\x14\0\0....b\x0c0\$(.{6})", re.S)
# Its summary for ThinLTO, which lld gives to a backend that sees one module alone.
THIN_LTO = re.compile(rb"\xa1\x20\0\0....\xa3\x04", re.S)
LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits + "._"


def find_inputs(name: str, dirs: list[str]) -> list[Path]:
    """The files that an input of the linker may mean."""
    if not name.startswith("-l"):  # what is no file, as /dev/stdin, can be read but once
        return [Path(name)] if Path(name).is_file() else []
    names = [name[3:]] if name[2:3] == ":" else [f"lib{name[2:]}.so", f"lib{name[2:]}.a"]
    found = (Path(folder) / n for folder in (*dirs, *SYSTEM_DIRS) for n in names)
    return [path for path in found if path.is_file()]


@cache
def read(path: Path) -> bytes | None:
    return path.read_bytes() if os.access(path, os.R_OK) else None


def native_code(path: Path) -> bytes | None:
    """The content of an object, an archive or assembly; empty of others; None if it has no say."""
    content = read(path)
    if content is None:
        return None
    if content.startswith(b"!<thin>") or (path.suffix == ".so" and content.startswith(b"/*")):
        # It only names other files.
        return b"" if path.parent.as_posix() in SYSTEM_DIRS else None
    native = content.startswith((b"\x7fELF", b"!<arch>")) or path.suffix in (".s", ".S", ".sx")
    return content if native else b""


def members(path: Path) -> Iterator[bytes]:
    """What is in an archive, or in the files that it only names; else the content."""
    content = read(path) or b""
    if not content.startswith((b"!<arch>\n", b"!<thin>\n")):
        yield content
        return
    thin, names, at = content.startswith(b"!<thin>"), b"", 8
    while len(header := content[at : at + 60]) == 60 and header[48:58].strip().isdigit():
        name, size = header[:16].rstrip(), int(header[48:58])
        inside = content[at + 60 : at + 60 + size]
        if name == b"//":
            names = inside
        elif name not in (b"/", b"/SYM64/"):
            if thin:
                if name[1:].isdigit():
                    name = names[int(name[1:]) :].partition(b"\n")[0]
                inside = read(path.parent / os.fsdecode(name.removesuffix(b"/"))) or b""
            yield inside
        if not thin or name in (b"/", b"//", b"/SYM64/"):
            at += size + size % 2
        at += 60


def lacks_hooks(path: Path) -> bool:
    """Is there code without bitcode that has none?"""
    return any(not code.startswith(BITCODE_BEGINS) and b"__cairn_abi_" not in code
               for code in members(path))  # fmt: skip


def bitcode_version(path: Path) -> int:
    """Of the newest LLVM that has written of it; 0 without bitcode."""
    return max(map(written_by, BITCODE.findall(read(path) or b"")), default=0)


def for_thin_lto(path: Path) -> bool:
    content = read(path) or b""
    return BITCODE.search(content) is not None and THIN_LTO.search(content) is not None


def written_by(letters: bytes) -> int:
    """The version in "LLVM22.1.8": the length, and letters, of six bits each."""
    bits = int.from_bytes(letters, "little")
    name = "".join(LETTERS[bits >> at & 63] for at in range(6, 48, 6))
    version = re.match(r"LLVM(\d+)", name)
    return int(version[1]) if version else 0


def options_of(word: str) -> str:
    """The options that code with this word was compiled with."""
    kind, _, rest = word.partition("_")
    if kind == "version":
        return f"a cairn-cc whose hooks have version {rest}"
    if kind == "shadow":
        region, _, threads = rest.partition("_")
        return f"-fcairn-region={region}" + (" -fcairn-threads" if threads else "")
    if kind == "tags":
        return "-fcairn-tags=epoch" if rest == "epoch" else "other -fcairn-tags than epoch"
    return f"-fcairn-tracker={word}"


def family(word: str) -> str:
    kind = word.partition("_")[0]
    return kind if kind in ("version", "tags") else "hooks"
