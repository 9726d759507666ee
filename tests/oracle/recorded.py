# SPDX-License-Identifier: MIT
"""
recorded.py ORACLE ARGUMENTS: the same run twice, first to record which pages each interval writes,
then under the strategy that takes this for the future. After a rewind the two do not agree on which
interval it is: pages are hot that are not written, and written that are not hot. It must not give
up.
"""

import subprocess
import sys
import tempfile
from pathlib import Path



def main() -> int:
    command = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="cairn-profile-") as folder:
        profile = Path(folder) / "profile"
        first = subprocess.run([*command, "--strategy", "none", "--record", str(profile)])
        if first.returncode:
            return first.returncode
        strategy = f"oracle:pages=1048576,share=1,profile={profile}"
        second = subprocess.run(
            [*command, "--strategy", strategy], stderr=subprocess.PIPE, text=True
        )
        sys.stderr.write(second.stderr)
        gave_up = "the profile" in second.stderr
        return second.returncode or int(gave_up)


if __name__ == "__main__":
    sys.exit(main())
