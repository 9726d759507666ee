#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cairn.h compiles alone as strict C11 or C++17. argv: the source tree, c11 | c++17."""

import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """
#include <cairn/cairn.h>
static_assert(CAIRN_TAKEN == 0 && CAIRN_RESTORED == 1, "pinned");
static_assert(CAIRN_EEVICTED == -4001 && CAIRN_EUNSUPPORTED == -4060, "pinned");
int use(cairn_t *c, uint64_t *id);
int use(cairn_t *c, uint64_t *id)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	return o.size == sizeof(o) ? cairn_checkpoint(c, id) : cairn_close(c);
}
"""


def main() -> int:
    source, language = Path(sys.argv[1]), sys.argv[2]
    compiler, kind = ("c++", "c++") if "++" in language else ("cc", "c")
    if not shutil.which(compiler):
        print(f"SKIP: a {language} compiler ({compiler})")
        return 77
    prefix = "#include <assert.h>\n" if kind == "c" else ""
    # The initialiser of the options names one field of many, which C++ warns about under -Wextra.
    command = [compiler, f"-x{kind}", f"-std={language}",
               "-Wall", "-Wextra", "-pedantic", "-Werror",
               "-Wno-missing-field-initializers", "-fsyntax-only", f"-I{source / 'include'}", "-"]
    if kind == "c++":
        command.insert(-1, "-Wno-pedantic")  # designated initialisers are C++20
    result = subprocess.run(command, input=prefix + PROGRAM, text=True, check=False)
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
