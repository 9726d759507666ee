# SPDX-License-Identifier: MIT
"""Words in files: response files, and command lines that are longer than execve takes.

These go to files without a name in the file system: a response file for clang, and "@FILE" as the
value of a variable, which the pass reads (options.cpp). All that the compiler starts has them open.
"""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

LONG = 1024  # what is not longer stays in the environment


class Wrong(Exception):
    """A command line that cannot be served: one line for the user."""


def expand(words: list[str]) -> list[str]:
    """The words with those of response files in their places."""
    out: list[str] = []
    for word in words:
        path = Path(word[1:])
        if word.startswith("@") and path.is_file():
            try:
                out += expand(shlex.split(os.fsdecode(path.read_bytes())))
            except ValueError as error:
                raise Wrong(f"{word}: {error}") from None
        else:
            out.append(word)
    return out


def execute(words: list[str], variables: dict[str, str]) -> None:
    """In place of this process; OSError if that cannot be."""
    try:
        os.execve(words[0], words, os.environ | variables)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
    short = {name: value if len(value) <= LONG else at_file(value)
             for name, value in variables.items()}  # fmt: skip
    os.execve(words[0], [words[0], at_file("\n".join(map(quoted, words[1:])))],
              os.environ | short)  # fmt: skip


def quoted(word: str) -> str:
    """As clang reads it in a response file."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def at_file(text: str) -> str:
    file = os.memfd_create("cairn-cc", flags=0)  # not closed by execve
    with open(file, "wb", closefd=False) as to:
        to.write(os.fsencode(text))
    return f"@/proc/self/fd/{file}"
