#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions of libstdc++ that have a wrapper (wrapped.def) are called by the tests in C++.

    test_wrapped_cxx.py [-m32] CAIRN_CXX ROOT

The compiler makes these calls, or a header does: it is asked what it has wrapped.
"""

import re
import subprocess
import sys
from pathlib import Path

PROGRAMS = (["containers.cpp"], ["exceptions.cpp"], ["statics.cpp"], ["streams.cpp"],
            ["thrown.cpp", "-fcairn-heap=off"])  # fmt: skip
FAMILIES = ("containers", "exceptions", "statics", "thrown", "streams")
# Names have the letter of a size: `unsigned long` is m, `long` l, `unsigned` j, `int` i.
OTHER_SIZES = {
    "-m32": r"E(?:l|li|lj|mmm|m|Pclc|Pwlw|Pcl)$",
    "": r"E(?:i|ii|ij|jjj|j|Pcic|Pwiw|Pci)$",
}


def covered(compiler: str, root: Path, words: list[str]) -> set[str]:
    source, *flags = words
    said = subprocess.run(
        [compiler, "-O0", "-w", f"-I{root}/include", str(root / "tests/compiler" / source),
         "-o", "built", "-fcairn-report", *flags],
        check=True, capture_output=True, text=True,
    ).stderr  # fmt: skip
    return set(re.findall(r"external function is covered: (\S+)", said))


def main() -> int:
    *flags, compiler, root = sys.argv[1:]
    table = (Path(root) / "src/rt/wrap/wrapped.def").read_text()
    names = re.findall(rf"^CUSTOM\((?:{'|'.join(FAMILIES)}), (\w+)\)", table, re.M)
    other = re.compile(OTHER_SIZES[flags[0] if flags else ""])
    wanted = {name for name in names if not other.search(name)}
    found: set[str] = set()
    for words in PROGRAMS:
        found |= covered(compiler, Path(root), [*words, *flags])
    missing = wanted - found
    assert len(wanted) > 20, wanted
    assert not missing, f"no test calls {sorted(missing)}"
    print(f"{len(wanted)} functions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
