#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run rows of the oracle (ROW or ROW:SEED) on Debian's stock kernel in QEMU: for trackers that
this host lacks.

Exit 0 pass, 1 fail, 77 skip (with the missing feature named). The machine has no disk and no
network: an initramfs with the oracle, the libraries it is linked to, and one small init.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

SKIP = 77
TIMEOUT_S = 550


def skip(feature: str) -> None:
    print(f"SKIP: {feature}")
    sys.exit(SKIP)


def newc(entries: list[tuple[str, int, bytes]]) -> bytes:
    """A cpio archive (newc) of (name, mode, content)."""
    out = io.BytesIO()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = [inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        out.write(b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0")
        out.write(b"\0" * (-out.tell() % 4))
        out.write(content)
        out.write(b"\0" * (-out.tell() % 4))
    return out.getvalue()


def libraries(program: Path) -> list[Path]:
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(p) for p in re.findall(r"(/\S+) \(0x", text)]


def initramfs(init: Path, oracle: Path, rows: list[str], tracker: str) -> bytes:
    executable, folder = 0o100755, 0o040755
    files = {Path("/init"): init.read_bytes(), Path("/oracle"): oracle.read_bytes()}
    files |= {lib: lib.read_bytes() for lib in libraries(oracle)}
    files[Path("/rows")] = "".join(f"{row} {tracker}\n" for row in rows).encode()
    folders = {p for f in files for p in f.parents if p != Path("/")}
    entries = [(str(p)[1:], folder, b"") for p in sorted(folders | {Path("/dev")})]
    entries += [(str(p)[1:], executable, content) for p, content in files.items()]
    return gzip.compress(newc(entries), 1)


def unpack_kernel(package: Path, to: Path) -> Path:
    subprocess.run(["dpkg-deb", "-x", package, to], check=True)
    return next((to / "boot").glob("vmlinuz-*"))


def find_kernel(cache: Path) -> Path:
    """Unpacked, never installed; fetched once, by whichever test comes first."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = sorted(cache.glob("boot/vmlinuz-*"))
        return found[-1] if found else fetch_kernel(cache)


def fetch_kernel(cache: Path) -> Path:
    depends = subprocess.run(
        ["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True
    ).stdout
    name = re.search(r"Depends: (linux-image-\S+-amd64)", depends)
    if not name:
        skip("the package linux-image-amd64 (not Debian, or apt-get update was never run)")
    get = subprocess.run(["apt-get", "download", name[1]], cwd=cache, capture_output=True)
    packages = list(cache.glob("linux-image-*.deb"))
    if get.returncode or not packages:
        skip(f"the package {name[1]} (cannot be downloaded)")
    kernel = unpack_kernel(packages[0], cache)
    shutil.rmtree(cache / "lib", ignore_errors=True)  # 400 MB of modules
    packages[0].unlink()
    return kernel


def boot(kernel: Path, image: Path) -> str:
    # No KVM: inside a virtual machine it may hang without a word.
    command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512", "-smp", "1"]
    command += ["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]
    command += ["-kernel", str(kernel), "-initrd", str(image)]
    command += ["-append", "console=ttyS0 quiet panic=-1"]
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace")
    return (run.stdout + run.stderr).decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--tracker", default="softdirty")
    parser.add_argument("rows", nargs="+")
    args = parser.parse_args()

    if not shutil.which("qemu-system-x86_64"):
        skip("qemu-system-x86_64 (apt-get install --no-install-recommends qemu-system-x86)")
    kernel = find_kernel(args.cache)
    config = next(kernel.parent.glob("config-*"), None)
    if args.tracker == "softdirty" and config:
        if "CONFIG_MEM_SOFT_DIRTY=y" not in config.read_text():
            skip("CONFIG_MEM_SOFT_DIRTY in Debian's kernel")
    image = Path("initramfs.gz")
    image.write_bytes(initramfs(args.init, args.oracle, args.rows, args.tracker))
    output = boot(kernel, image)
    results = dict(re.findall(rf"RESULT (\S+) {args.tracker} (\d+)", output))
    bad = [row for row in args.rows if results.get(row) != "0"]
    print(output[-6000:] if bad else f"{len(args.rows)} rows passed under {kernel.name}")
    for row in bad:
        print(f"FAIL: {row}: exit {results.get(row, 'none: the machine did not get that far')}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
