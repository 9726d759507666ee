# SPDX-License-Identifier: MIT
"""
Real programs built by cairn-cc, from Debian's sources, in build-programs/ of this tree (which git
ignores). Each is configured and made once, as any source is (CC=cairn-cc ./configure && make); its
objects are bitcode, so the other variants are links of the same objects:

    plain      the same compiler and options, no hooks: what ratios are taken to
    shadow, undolog     with a checkpoint at each site

A program that is older than the compiler, or was linked by other steps, is linked again.

    lmc_programs.py [--build DIR] [PROGRAM...]      fetch and build what there is not
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from debian_source import PATIENCE, ROOT, STORE, BuildError, NotHere, compiler, fetch
from lmc_recipes import RECIPES, RECIPES_32, VARIANTS, Recipe
from results import digest


def plain_cc(cairn_cc: Path, folder: Path) -> Path:
    """The compiler that cairn-cc calls, without its options: a script in that folder."""
    clang, version = compiler(cairn_cc)
    path = folder / "plain-cc"
    path.write_text(
        "#!/bin/bash\nwords=()\n"
        "for word; do if [[ $word == -fcairn-site=* ]]; then site=${word#*=}\n"
        "words+=(-mllvm -force-attribute=${site%%[:/]*}:noinline)\n"
        'elif [[ $word != -fcairn-* ]]; then words+=("$word"); fi; done\n'
        f"exec {clang} -flto=full -fPIE --ld-path=$(command -v ld.lld-{version})"
        ' -Qunused-arguments "${words[@]}"\n'
    )
    path.chmod(0o755)
    return path


def newest(build: Path) -> float:
    """When the compiler or what it links into programs was last made."""
    parts = [build / "bin" / "cairn-cc", *build.glob("lib/cairn-*"), *build.glob("lib/libcairn*.a")]
    return max((part.stat().st_mtime for part in parts), default=0)


class Refused(BuildError):
    """By cairn-cc, with this reason."""


class Builder:
    """Compiles once; links again what is older than the compiler."""

    def __init__(self, recipe: Recipe, build: Path) -> None:
        self.recipe = recipe
        self.cairn_cc, self.newest = (build / "bin" / "cairn-cc").resolve(), newest(build)
        self.folder = STORE / recipe.name
        self.log = STORE / f"{recipe.name}.log"

    def say(self, what: str) -> None:
        """A step begins, which may take minutes."""
        now = time.strftime("%H:%M:%S")
        print(f"{now} {self.recipe.name}: {what}", file=sys.stderr, flush=True)

    def run(self, command: str, compiler: str) -> None:
        sites = (f"-fcairn-site={site}" for site in self.recipe.sites)
        flags = " ".join(["-O2", self.recipe.flags, *sites])
        names = {"CC": compiler, "FLAGS": flags, "STORE": str(STORE)}
        names["JOBS"] = str(os.cpu_count() or 1)
        with self.log.open("a") as log:
            log.write(f"--- {command} [CC={compiler}]\n")
            log.flush()
            done = subprocess.run(
                ["nice", "-n", "10", "bash", "-c", command],
                cwd=self.folder,
                env={**os.environ, **names},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE,
            )
        if done.returncode:
            last = (self.log.read_text(errors="replace").splitlines() or [""])[-1]
            raise BuildError(f"{self.recipe.name}: {command[:60]}: {last[:200]} ({self.log})")

    def configure(self) -> None:
        """The source's own steps, once: they hold for one recipe and one clang."""
        recipe, cc = self.recipe, str(self.cairn_cc)
        said = subprocess.run([cc, "--version"], capture_output=True, text=True).stdout
        steps = (recipe.source, recipe.parts, recipe.prepare, recipe.configure, recipe.sites)
        steps += (recipe.flags,) if recipe.flags else ()
        made, mark = digest(f"{steps} {cc} {said}"), self.folder / ".configured"
        if mark.exists() and mark.read_text() == made:
            return
        self.say(f"fetching {recipe.source}")
        source = fetch(recipe.source)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(source, self.folder, symlinks=True)
        for place, part in recipe.parts.items():
            shutil.copytree(fetch(part), self.folder / place, symlinks=True)
        self.log.write_text("")
        self.say(f"configuring and compiling: {self.log}")
        self.run(recipe.prepare, cc)
        self.run(recipe.configure, cc)
        for path in (STORE / "bin").glob(f"{recipe.name}-*"):
            path.unlink()
        mark.write_text(made)

    def steps(self, options: str | None) -> str:
        """Of a link: a variant that others have made is made again."""
        recipe = self.recipe
        return digest(f"{recipe.make} {recipe.flags} {recipe.sites} {recipe.options} {options}")

    def link(self, variant: str, options: str | None) -> Path:
        """The variant with these options of cairn-cc; None: by clang alone."""
        out = self.recipe.path(variant)
        made, mark = self.steps(options), out.with_suffix(".made")
        current = options is None or (out.exists() and out.stat().st_mtime >= self.newest)
        if out.exists() and current and mark.exists() and mark.read_text() == made:
            return out
        self.say(f"linking {variant}")
        out.parent.mkdir(exist_ok=True)
        compiler = str(plain_cc(self.cairn_cc, out.parent))
        if options is not None:
            compiler = f"{self.cairn_cc} {self.recipe.options} {options}"
        binary = self.folder / self.recipe.binary
        binary.unlink(missing_ok=True)
        begin = self.log.stat().st_size
        self.run(self.recipe.make, compiler)
        if not os.access(binary, os.X_OK):
            raise BuildError(f"{self.recipe.name}: no {binary} was made ({self.log})")
        total = re.findall(r"^cairn: total: .*", self.log.read_bytes()[begin:].decode(), re.M)
        if total:
            out.with_suffix(".report").write_text(total[-1])
        shutil.copy2(binary, out)
        mark.write_text(made)
        return out


    def try_to_link(self, variant: str, options: str | None) -> None:
        """What cairn-cc refuses has its reason, which is a row of the report."""
        refusal = self.recipe.refusal(variant)
        if refusal.exists() and refusal.stat().st_mtime >= self.newest:
            return
        refusal.unlink(missing_ok=True)
        begin = self.log.stat().st_size
        try:
            self.link(variant, options)
        except BuildError:
            said = self.log.read_bytes()[begin:].decode(errors="replace")
            reason = re.search(r"^cairn-cc: (.*)", said, re.M)
            if not reason or options is None:
                raise
            self.recipe.path(variant).unlink(missing_ok=True)
            refusal.write_text(reason[1])


def recipe_of(name: str) -> Recipe:
    return RECIPES_32[name] if name in RECIPES_32 else RECIPES[name]


def missing(name: str, build: Path) -> str | None:
    """Why it cannot be built here, or None."""
    if not (build / "bin" / "cairn-cc").exists():
        return "cairn-cc is not built (scripts/install_deps.sh compiler)"
    if name in RECIPES_32 and not (build / "lib" / "cairn-32").exists():
        return "cairn-cc is built without 32-bit libc (scripts/install_deps.sh compiler-32)"
    for package in recipe_of(name).packages:
        done = subprocess.run(["dpkg-query", "-W", package], capture_output=True)
        if done.returncode:
            return f"{package} is not installed (scripts/install_deps.sh programs)"
    return None


def built(name: str, build: Path) -> Recipe:
    """The program with its variants; builds what there is not, or is older than the compiler."""
    if why := missing(name, build):
        raise NotHere(f"{name}: {why}")
    builder = Builder(recipe_of(name), build)
    builder.configure()
    for variant, options in VARIANTS.items():
        builder.try_to_link(variant, options)
    return builder.recipe


def linked(name: str, build: Path, variant: str) -> Path:
    """One variant alone. "plain" is by the same compiler and options, and has no hooks."""
    if why := missing(name, build):
        raise NotHere(f"{name}: {why}")
    builder = Builder(recipe_of(name), build)
    builder.configure()
    return builder.link(variant, VARIANTS[variant])


def built_with(name: str, build: Path, rows: dict[str, str]) -> dict[str, Path]:
    """More variants of a program that is built: their options, by row."""
    builder = Builder(recipe_of(name), build)
    return {row: builder.link(row, options) for row, options in rows.items()}


def built_checked(name: str, build: Path, tracker: str) -> Path:
    """The program with an oracle at its sites (tests/compiler/checked_site.c)."""
    builder = Builder(recipe_of(name), build)
    source = ROOT / "tests" / "compiler" / "checked_site.c"
    checker = STORE / f"checked_site{'-32' if name in RECIPES_32 else ''}.o"
    words = ["-O1", "-fno-lto", "-fno-omit-frame-pointer", "-fPIE", f"-I{ROOT}/include"]
    words += builder.recipe.flags.split()
    variant = f"checked-{tracker}"
    out = builder.recipe.path(variant)
    if out.exists() and out.stat().st_mtime < source.stat().st_mtime:
        out.unlink()
    clang = plain_cc(builder.cairn_cc, STORE / "bin")
    subprocess.run([clang, *words, "-c", source, "-o", checker], check=True)
    builder.try_to_link(variant, f"-fcairn-tracker={tracker} -Wl,{checker}")
    if why := builder.recipe.refused(variant):
        raise Refused(why)
    return builder.recipe.path(variant)


def asked(description: str | None, programs: Iterable[str]) -> tuple[Path, list[str]]:
    """[--build DIR] [PROGRAM...] of the command line, all of them if it names none."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("programs", nargs="*", default=list(programs))
    arguments = parser.parse_args()
    return arguments.build.resolve(), arguments.programs


def main() -> int:
    build, names = asked(__doc__, RECIPES)
    status = 0
    for name in names:
        try:
            recipe = built(name, build)
            print(f"{name}: {recipe.path('shadow')} and others", flush=True)
        except BuildError as error:
            print(f"lmc_programs.py: {error}", file=sys.stderr, flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
