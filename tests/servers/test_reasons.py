#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The reason that a row of `make bench` has in place of figures is the line of `cairn run` or of the
agent, also where a client has noticed first that nobody serves it. No server is started.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "servers"), str(ROOT / "bench")]

from rounds import reason_of  # noqa: E402
from servers import Server, ServerError  # noqa: E402

REFUSED = "cairn run: tracker softdirty cannot run on this host: see `cairn doctor`"
AGENT = "cairn: no checkpoint: the limit of memory is reached"


def reason(log: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), [])
        server.errors.write_text(log)
        return reason_of(ServerError(f"ftp: {EOFError()!r}\n{server.last_words()}"))


def main() -> int:
    cases = {
        f"{REFUSED}\n{REFUSED}\n": REFUSED,
        f"started\n{AGENT}\nended\n": AGENT,
        "started\n": "ftp: EOFError()",
    }
    for log, want in cases.items():
        if (said := reason(log)) != want:
            print(f"FAIL: {said!r}, not {want!r}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
