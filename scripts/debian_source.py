# SPDX-License-Identifier: MIT
"""
What programs and the libc for cairn-cc are built from: Debian's sources, in build-programs/ of this
tree (which git ignores), and the clang that cairn-cc calls.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "build-programs"
PATIENCE = 3600  # seconds, of one command: the machine may be busy


class BuildError(RuntimeError):
    """One line: what could not be had."""


class NotHere(BuildError):
    """What a build begins with is not to be had on this host: a source, a package, a compiler."""


def compiler(cairn_cc: Path) -> tuple[str, str]:
    """The clang that cairn-cc calls, and its version."""
    if not cairn_cc.exists():
        raise NotHere(f"no {cairn_cc}: scripts/install_deps.sh compiler, and build again")
    question = [cairn_cc, "-###", "-x", "c", "-c", "/dev/null"]
    said = subprocess.run(question, capture_output=True, text=True).stderr
    clang = re.search(r'"(/[^"]*clang[^"]*)"', said)
    version = re.search(r"clang version (\d+)", said)
    if not clang or not version:
        raise BuildError(f"{cairn_cc} -### names no clang")
    return clang[1], version[1]


def _source_lists() -> str:
    """Debian's own entries of this host's lists, for sources."""
    found = []
    for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        text = path.read_text() if path.is_file() else ""
        for line in text.splitlines() if path.suffix == ".list" else ():
            if re.match(r"deb\s.*debian", line):
                found.append(re.sub(r"^deb\s", "deb-src ", line))
        for entry in text.split("\n\n") if path.suffix == ".sources" else ():
            fields = dict(re.findall(r"^(\w[\w-]*):\s*(.+)$", entry, re.MULTILINE))
            if "debian" in fields.get("URIs", ""):
                for suite in fields["Suites"].split():
                    where = fields["URIs"].split()[0]
                    found.append(f"deb-src {where} {suite} {fields['Components']}")
    return "\n".join(dict.fromkeys(found)) + "\n"


def _apt(*words: str, folder: Path | None = None) -> str:
    """apt with lists of its own: the host's are left as they are."""
    own = STORE / "apt"
    if not (own / "configuration").exists():
        for name in ("lists/partial", "cache/archives/partial"):
            (own / name).mkdir(parents=True, exist_ok=True)
        (own / "sources.list").write_text(_source_lists())
        (own / "configuration").write_text(
            f'Dir::Etc::sourcelist "{own}/sources.list";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State::lists "{own}/lists";\nDir::Cache "{own}/cache";\n'
        )
        _apt("apt-get", "update")
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "APT_CONFIG": str(own / "configuration")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if done.returncode:
        raise NotHere(f"{' '.join(words)}: {(done.stderr.splitlines() or ['failed'])[-1]}")
    return done.stdout


def fetch(package: str) -> Path:
    """Its unpacked source. The newest that is to be had: lists may name one that is gone."""
    folder = STORE / "src" / package
    if (folder / "unpacked").exists():
        return next(folder.glob("*/"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    versions = re.findall(r"^Version: (\S+)", _apt("apt-cache", "showsrc", package), re.MULTILINE)
    trouble = f"no source of {package}"
    for version in reversed(versions):
        try:
            _apt("apt-get", "-q", "source", f"{package}={version}", folder=folder)
            break
        except BuildError as error:
            trouble = str(error)
    else:
        if not versions or not _fetch_upstream(package, folder):
            raise NotHere(trouble)
    (folder / "unpacked").touch()
    return next(folder.glob("*/"))


def _fetch_upstream(package: str, folder: Path) -> bool:
    """What Debian's changes apply to, where these are not to be had."""
    try:
        _apt("apt-get", "-q", "source", "--tar-only", package, folder=folder)
    except BuildError:
        return False
    for tar in folder.glob("*.orig.tar.*"):
        subprocess.run(["tar", "xf", tar], cwd=folder, check=True)
        return True
    return False
