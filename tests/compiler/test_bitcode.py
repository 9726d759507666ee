#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the pass makes of small pieces of bitcode (ll/*.ll), by opt and FileCheck.

    test_bitcode.py LLVM_BIN PLUGIN [FILE...]

A file says with which options, and under which prefix it is checked; -TWICE: after two passes.

    ; RUN: PREFIX CAIRN_PASS

    ; PASSES: NAME,...                  other than the store hooks
    ; LOOP: WORD ...                    a loop that gets a site; a line for each

FileCheck sees what -fcairn-report prints, and then the code.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

SKIP = 77


def check(bin_dir: Path, plugin: str, source: Path) -> list[str]:
    """The lines of failed runs; none if all is well."""
    failures: list[str] = []
    text = source.read_text()
    runs = re.findall(r"^; RUN(-TWICE)?: (\w+) (\S+)$", text, re.M)
    passes = "".join(re.findall(r"^; PASSES: (\S+)$", text, re.M)) or "cairn"
    loops = "\n".join(x.replace(" ", "\t") for x in re.findall(r"^; LOOP: (.+)$", text, re.M))
    if not runs:
        return [f"{source.name}: no RUN line"]
    for twice, prefix, options in runs:
        opt = [bin_dir / "opt", f"-load-pass-plugin={plugin}", "-S",
               f"-passes={passes},{passes},verify" if twice else f"-passes={passes},verify"]
        environment = {**os.environ, "CAIRN_PASS": options, "CAIRN_LOOPS": loops}
        # By its name alone: the folder's would stand in the output.
        done = subprocess.run([*opt, source.name], cwd=source.resolve().parent, env=environment,
                              capture_output=True, text=True)  # fmt: skip
        if done.returncode:
            failures.append(f"{source.name} {prefix}: opt: {done.stderr}")
            continue
        seen = subprocess.run(
            [bin_dir / "FileCheck", f"--check-prefix={prefix}", source],
            input=done.stderr + done.stdout, capture_output=True, text=True,
        )  # fmt: skip
        if seen.returncode:
            failures.append(f"{source.name} {prefix} {options}:\n{seen.stderr}")
    return failures


def main() -> int:
    bin_dir, plugin = Path(sys.argv[1]), sys.argv[2]
    sources = [Path(name) for name in sys.argv[3:]]
    for tool in ("opt", "FileCheck"):
        if not (bin_dir / tool).exists():
            print(f"SKIP: {tool} of LLVM (package llvm-*-tools)")
            return SKIP
    sources = sources or sorted((Path(__file__).parent / "ll").glob("*.ll"))
    failures = [line for source in sources for line in check(bin_dir, plugin, source)]
    print("\n".join(failures) or f"{len(sources)} files")
    return 1 if failures or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
