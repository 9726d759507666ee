#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cairn-cc, cairn-c++: clang with byte-granular checkpoints (man cairn-cc).

Takes any command line of clang. Its own options begin with -fcairn-; everything else is clang's.
By default code is compiled to bitcode and gets its store hooks when lld links all of it; with
-fcairn-unit (or -fno-lto, or -S) each translation unit gets them when it is compiled.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

# Modules of cairn-cc lie beside libcairn. None is compiled into a folder that may be another's.
sys.path[:1] = [str(Path(__file__).resolve().parent.parent / folder / "cairn-cc")
                for folder in ("lib", "@CMAKE_INSTALL_LIBDIR@")]  # fmt: skip
sys.dont_write_bytecode = True

from linked_files import (  # noqa: E402
    BEGINS, MADE_FOR, SYSTEM_DIRS, bitcode_version, family, find_inputs, for_thin_lto,
    lacks_hooks, native_code, options_of, read,
)  # fmt: skip
from long_words import Wrong, execute, expand  # noqa: E402

# Filled in when the tree is configured.
LLVM = int("@version@")
CLANG = "@CRN_CLANG@"
CLANGXX = "@CRN_CLANGXX@"
PASS = "@CRN_PASS@.so"
LLD = "@CRN_LLD@"
LIBRARY_DIR = "@CMAKE_INSTALL_LIBDIR@"
MUSL = "cairn-musl-@version@"
HELP = """@CRN_HELP@"""
NARROW = "cairn-32"  # the folder of what 32-bit programs link
NARROW_AT = "@CRN_RT_IMAGE_AT_32@"  # where they lie

TRACKERS = ("shadow", "undolog")
TAGS = ("zero", "bzero", "mmap", "dontneed", "epoch")
REGIONS = ("1", *(str(1 << shift) for shift in range(4, 13)))
SWITCHES = ("save", "guard", "stack", "fresh", "loops", "segments", "aggregate", "aligned",
            "redundant", "calls", "clone", "wrap", "heap")  # fmt: skip
KEEP_MAX = 65536  # checkpoints, as cairn_open(3) has it
HEADER = re.compile(r"-x.*-header")
SITE = re.compile(r"([A-Za-z_$][\w$]*)(:entry|:return)?(:long)?(/[1-9]\d{0,8})?")

# Options of clang that take the next word.
TAKES_WORD = {"-o", "-x", "-I", "-D", "-U", "-L", "-l", "-include", "-imacros", "-isystem",
              "-iquote", "-idirafter", "-isysroot", "-MF", "-MT", "-MQ", "-T", "-u", "-z", "-e",
              "-Xlinker", "-Xclang", "-Xassembler", "-Xpreprocessor", "-mllvm", "-target", "-arch",
              "-framework", "-B", "-G", "-F", "-A", "-iprefix", "-iwithprefix", "-soname",
              "-rpath", "--param", "--sysroot", "-gcc-toolchain"}  # fmt: skip
# They stop before there is an object; one of two names.
STOPS = {name: name for name in ("-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--analyze",
         "-emit-ast", "--precompile", "-fmodule-header")}  # fmt: skip
STOPS |= {"--compile": "-c", "--assemble": "-S", "--preprocess": "-E"}
HEADER_ENDS = (".h", ".hh", ".hpp", ".hxx", ".hp", ".H")
CXX_ENDS = (".cc", ".cpp", ".cxx", ".c++", ".C", ".CPP", ".ii")
# What makes the linker write a program that is not position independent.
FIXED_PLACE = {"-no-pie", "--no-pie", "-nopie", "-no-pic-executable", "--no-pic-executable"}
# Sanitizers whose own memory lies where a restore does not turn it back, or where the shadow is.
OWN_MEMORY = {"address", "kernel-address", "hwaddress", "kernel-hwaddress", "thread", "memory",
              "kernel-memory", "numerical", "type", "dataflow"}  # fmt: skip
# Sanitizers with a run-time that needs glibc, unless they trap.
CHECKS = {"undefined", "integer", "nullability", "leak", "fuzzer", "scudo", "realtime"}
PRINTS = ("-print-", "--print-", "--version", "-dumpversion", "-dumpmachine", "--help", "-###")


class Command:
    """What a command line of clang asks for."""

    def __init__(self, words: list[str]) -> None:
        self.clang: list[str] = []  # what goes to clang
        self.own: dict[str, str] = {"tracker": "shadow", "region": "128"}
        self.switches: dict[str, str] = {}
        self.sites: list[str] = []
        self.unit = self.report = self.warn_uncovered = self.profile = self.complete = False
        self.lost: dict[str, str] = {}
        self.profiles: list[str] = []  # their loops get sites
        self.loops: dict[str, str] = {}  # as the pass takes them, and the program of each
        self.keep = self.stop = self.lto = ""
        self.output, self.tags = "a.out", "zero"
        self.abi_lists: list[str] = []
        self.prints = False
        self.files: list[str] = []  # inputs by name, libraries as -lNAME
        self.dirs: list[str] = []
        self.flags: set[str] = set()
        self.linker: set[str] = set()
        self.wrapped: list[str] = []  # by --wrap
        self.wrap_follows = False
        self.sanitizers: set[str] = set()
        # Response files are read here, too: they may hold any option.
        self.read(list(expand(words)))

    def read(self, words: list[str]) -> None:
        following = iter(words)
        for word in following:
            if word == "--":  # files alone; ours are behind them
                names = [f"./{name}" if name.startswith("-") else name for name in following]
                self.clang += names
                self.files += names
                break
            if word.startswith("-fcairn-"):
                self.read_own(word)
                continue
            if word.startswith(("-flto", "-fno-lto")):
                self.lto = word
                continue
            if word.startswith(("-fuse-ld=", "--ld-path=", "-ffat-lto-objects")):
                continue  # hooks come from lld, and from bitcode alone
            self.clang.append(word)
            self.note(word)
            if word in TAKES_WORD:
                argument = next(following, None)
                if argument is None:
                    raise Wrong(f"the word that belongs to {word} is missing")
                self.clang.append(argument)
                self.note_argument(word, argument)

    def note_for_linker(self, words: list[str]) -> None:
        """What -Wl and -Xlinker hand over: libraries, folders and files."""
        for word in words:
            self.linker.add(word)
            if word == "-Xlinker":  # its own word comes by itself
                continue
            if self.wrap_follows or word.startswith(("--wrap=", "-wrap=")):
                self.wrapped.append(word.rpartition("=")[2])
            self.wrap_follows = word in ("--wrap", "-wrap")
            if word.startswith("-L"):
                self.dirs.append(word[2:])
            elif word.startswith("-l") or (not word.startswith("-") and Path(word).is_file()):
                self.files.append(word)

    def note_argument(self, word: str, argument: str) -> None:
        if word in ("-o", "-l", "-L", "-x"):
            self.note(word + argument)
        elif word == "-Xlinker":
            self.note_for_linker([argument])
        elif word == "-target":
            self.flags.add(f"--target={argument}")

    def note(self, word: str) -> None:
        if (stop := STOPS.get(word.partition("=")[0])) or HEADER.fullmatch(word):
            self.stop = self.stop if self.stop not in ("", "-c") else stop or "-c"  # the earliest
        elif word.startswith(PRINTS):
            self.prints = True
        elif word.startswith("-") and word != "-":
            if word.startswith("-o") and word != "-o":
                self.output = word[2:]
            self.flags.add(word)
            self.note_sanitizers(word)
            self.note_for_linker(word.split(",")[1:] if word.startswith("-Wl,") else [word])
        else:
            self.files.append(word)

    def note_sanitizers(self, word: str) -> None:
        option, equals, names = word.partition("=")
        if option == "-fsanitize" and equals:
            self.sanitizers.update(names.split(","))
        elif option == "-fno-sanitize" and equals:
            self.sanitizers.difference_update(names.split(","))
            if "all" in names.split(","):
                self.sanitizers.clear()

    def read_own(self, word: str) -> None:
        name, equals, value = word.removeprefix("-fcairn-").partition("=")
        if value in {"tracker": TRACKERS, "region": REGIONS}.get(name, ()):
            self.own[name] = value
        elif name == "tags" and value in TAGS:
            self.tags = value
        elif name in SWITCHES and value in ("on", "off"):
            self.switches[name] = value
        elif name == "site" and SITE.fullmatch(value):
            if value not in self.sites:  # as often as CFLAGS and LDFLAGS are both on a line
                self.sites.append(value)
        elif name == "site-threads" and value in ("all", "one"):
            self.switches["site-one"] = "on" if value == "one" else "off"
        elif name in ("report", "profile", "unit", "complete", "warn-uncovered") and not equals:
            setattr(self, name.replace("-", "_"), True)
        elif name == "threads" and not equals:
            self.switches["threads"] = "on"
        elif name == "hybrid" and not equals:
            self.switches |= {"hybrid": "on", "clone": "on"}
        elif name == "abilist" and value:
            if "," in value or not Path(value).is_file():
                raise Wrong(f"-fcairn-abilist: no file '{value}' (without a comma in its name)")
            self.abi_lists.append(os.path.abspath(value))
        elif name == "sites" and value:
            self.profiles.append(value.removesuffix(":long"))
            if value.endswith(":long"):
                self.switches["sites-long"] = "on"
        elif name == "keep" and value.isdigit() and 1 <= int(value) <= KEEP_MAX:
            self.keep = value
        elif name in ("test-lose", "test-miss") and value.isdigit():
            self.lost[name[5:]] = value  # hooks that are left out, for tests
        elif equals and name in (
            "tracker", "region", "tags", "site", "site-threads", "sites", "keep", *SWITCHES,
        ):  # fmt: skip
            raise Wrong(f"-fcairn-{name} has no value '{value}' (man cairn-cc)")
        else:
            raise Wrong(f"no option '{word}' (man cairn-cc lists them)")

    def threads(self) -> bool:
        return "threads" in self.switches

    def per_unit(self) -> bool:
        """Hooks when a unit is compiled, not when it is linked."""
        return self.unit or self.profile or self.lto == "-fno-lto" or self.stop == "-S"

    def links(self) -> bool:
        return not self.stop and not self.prints and not all(
            name.endswith(HEADER_ENDS) for name in self.files)  # fmt: skip

    def probes(self) -> bool:
        """A configure script asks what can be linked: also what would be left out as unused."""
        return any(Path(name).stem == "conftest" for name in self.files)

    def narrow(self) -> bool:
        """For 32-bit programs: the last word counts."""
        return [w for w in ("-m64", *self.clang) if w in ("-m32", "-m64")][-1] == "-m32"

    def has(self, *names: str) -> bool:
        return any(name in self.flags for name in names)

    def needs_glibc(self) -> str:
        """What links a run-time of clang's that does."""
        counts = [w for w in sorted(self.flags) if w == "--coverage" or re.match(
            "-f(cs-)?profile-(instr-)?generate|-fprofile-arcs", w)]  # fmt: skip
        traps = any(w.startswith(("-fsanitize-trap", "-fsanitize-minimal")) for w in self.flags)
        checks = [] if traps else [f"-fsanitize={x}" for x in sorted(self.sanitizers & CHECKS)]
        return "".join([*counts, *checks][:1]) if self.links() else ""

    def partial(self) -> bool:
        """A shared library or a relocatable object: not the whole program."""
        return self.has("-shared", "-r", "--relocatable") or not self.linker.isdisjoint(
            ("-shared", "-r", "--relocatable", "-Bshareable"))  # fmt: skip

    def kinds(self) -> list[str]:
        """Of the run-time: one for the hooks, and with the shadow one for its tags."""
        if self.own["tracker"] == "undolog":
            return ["undolog"]
        threads = "_threads" if self.threads() else ""
        return [f"shadow_{self.own['region']}{threads}", f"tags_{self.tags}"]

    def ask_for_loops(self) -> None:
        """What the profiles recommend; `cairn profile report` reads them, and judges them."""
        cairn = Path(__file__).resolve().parent / "cairn"
        for path in self.profiles:
            command = [cairn, "profile", "report", "--sites", path]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as error:
                raise Wrong(f"-fcairn-sites: {cairn}: {error.strerror}") from None
            if done.returncode:
                raise Wrong(f"-fcairn-sites: {done.stderr.strip().removeprefix('cairn profile: ')}")
            program, *loops = done.stdout.splitlines()
            self.loops |= dict.fromkeys(loops, program)

    def may_lack_sites(self) -> bool:
        """Another program than those profiled, or none of its loops is its own code's."""
        known = Path(self.output).name in self.loops.values()
        return not known or len(self.loops_elsewhere()) == len(self.loops)

    def loops_elsewhere(self) -> list[str]:
        """Loops that have their sites in other programs, or in shared libraries of this link."""
        codes = [native_code(path) or b"" for path in self.paths() if ".so" in path.name]
        name = Path(self.output).name
        return [loop for loop, program in self.loops.items() if program != name in
                self.loops.values() or any(loop.encode() in code for code in codes)]  # fmt: skip

    def paths(self) -> list[Path]:
        """The files that inputs may mean, but for our own."""
        return sorted({path for name in self.files for path in find_inputs(name, self.dirs)
                       if not path.name.startswith("libcairn")})  # fmt: skip

    def natives(self) -> list[Path]:
        """Of these, what has no bitcode, but for the system's libraries."""
        return [path for path in self.paths() if self.links() and native_code(path) != b""
                and path.parent.as_posix() not in SYSTEM_DIRS]  # fmt: skip

    def what_is_known(self) -> dict[str, str]:
        """Of what is linked without bitcode: does it take checkpoints, can its malloc have hooks?

        Sources and bitcode are the pass's own business. An archive of bitcode that has such names
        counts as native: that costs speed, never a store.
        """
        natives = [native_code(path) for path in self.paths()]
        if "assembler" in " ".join(self.clang) or None in natives:
            return {}
        known = {}
        if not any(name in code for code in natives for name in BEGINS):
            known["native-quiet"] = "on"
        hooked = any(b"__cairn_abi_" in code for code in natives)
        if not self.has("-static-pie") and not self.complete and not hooked:
            known["fresh"] = "on"
        return known

    def pass_options(self, link: bool) -> str:
        if self.profile:
            return "profile=on"
        own = {**self.own, "link": "on" if link else "off"}
        own["lto"] = "off" if self.per_unit() else "on"
        if link:
            own |= self.what_is_known()
        own |= self.switches
        if self.complete:
            own |= {"heap": "off", "own": "off"}  # what has libc's names is libc's, with hooks
        own["tags"] = "epoch" if self.tags == "epoch" else "one"
        own |= {name: "on" for name, given in (
            ("report", self.report), ("warn-uncovered", self.warn_uncovered)) if given}  # fmt: skip
        if link and self.loops and self.may_lack_sites():
            own["may-lack-sites"] = "on"
            if sum(not name.startswith("-l") for name in self.files) < 2:
                own["warn-lack"] = "off"  # configure's checks want no warnings
        if self.sites and (self.probes() or self.partial()):
            own["warn-lack"] = "off"
        own |= self.lost
        items = [*own.items(), ("libc-abilist", library("cairn-libc.abilist"))]
        items += [*(("site", x) for x in self.sites), *(("abilist", x) for x in self.abi_lists)]
        return ",".join(f"{key}={value}" for key, value in items)


def check_narrow(command: Command) -> None:
    """What there is not with -m32."""
    library(NARROW)
    if command.links() and not command.partial():
        moves = [w for w in ("-pie", "--pie", "-static-pie", "--pic-executable")
                 if w in command.flags | command.linker]  # fmt: skip
        if moves:
            raise Wrong(f"{moves[0]}: a 32-bit program with hooks lies at a fixed place (the "
                        "tags of its shadow are below it)")
    for word in sorted(w for w in command.flags if re.fullmatch("-mregparm=0*[1-9].*", w)):
        raise Wrong(f"{word} is not supported: libc and the run-time have arguments on the stack")
    if command.own["region"] == "1":
        raise Wrong("-fcairn-region=1 is not for -m32: tags would take a third of the addresses")
    loops = "profile the 64-bit build, and name the site by -fcairn-site"
    for wanted, option, why in (
        (command.threads(), "-fcairn-threads",
         "an entry of a list takes two stores there, between which others may read it"),
        (command.complete, "-fcairn-complete", "there is no 32-bit libc with hooks"),
        ("hybrid" in command.switches, "-fcairn-hybrid", "there is no tracker of pages"),
        (command.profile, "-fcairn-profile", loops), (command.profiles, "-fcairn-sites", loops),
    ):  # fmt: skip
        if wanted:
            raise Wrong(f"{option} is not for -m32: {why}")


def check(command: Command) -> None:
    """Refuse what could only go wrong later."""
    for word in sorted(command.flags):
        target = word.startswith("--target=") and not re.fullmatch(
            r"--target=(x86_64|amd64)(-(?!.*x32$).*)?", word)  # fmt: skip
        if target or word in ("-m16", "-mx32"):
            raise Wrong(f"{word} is not supported: build for x86-64, or with -m32")
        if word == "-fsplit-stack" or (word.startswith("-fsanitize=") and "safe-stack" in word):
            raise Wrong(f"{word} is not supported: a checkpoint copies one stack")
    for word in (*(f"-fsanitize={name}" for name in sorted(command.sanitizers & OWN_MEMORY)),
                 *(w for w in command.flags if re.fullmatch("-fmemory-profile(=.*)?", w))):
        raise Wrong(f"{word} is not supported: what it keeps of the program's memory is "
                    "not restored with that; use it in a build by clang (undefined works)")
    if command.narrow():
        check_narrow(command)
    elif command.links() and not command.partial():
        fixed = sorted(FIXED_PLACE.intersection(command.linker | command.flags))
        if fixed:
            raise Wrong(f"{fixed[0]}: an instrumented program must be position independent "
                        "(its shadow is at a constant distance from where PIEs lie)")
        if command.has("-static") and not command.has("-static-pie"):
            raise Wrong("-static: use -static-pie, for the program must be position independent")
    if command.complete and command.per_unit() and command.links():
        raise Wrong("-fcairn-complete: libc gets its hooks when all is linked, so not with "
                    "-fcairn-unit or -fno-lto")
    if command.complete and command.profile:
        raise Wrong("-fcairn-profile counts without hooks: not with -fcairn-complete")
    if command.complete and (word := command.needs_glibc()):
        raise Wrong(f"-fcairn-complete: clang's run-time for {word} needs glibc; of sanitizers, "
                    "undefined works with -fsanitize-trap=all")
    if command.complete and command.has("-shared"):
        raise Wrong("-fcairn-complete makes static programs: no -shared")
    if command.threads() and command.own["tracker"] != "shadow":
        raise Wrong("-fcairn-threads is for -fcairn-tracker=shadow: a log has no order of threads")
    if command.threads() and command.tags == "epoch":
        raise Wrong("-fcairn-threads and -fcairn-tags=epoch do not go together")
    if command.profile and command.profiles:
        raise Wrong("-fcairn-profile and -fcairn-sites do not go together: profile first")
    if "hybrid" in command.switches:
        check_hybrid(command)
    if command.switches.get("save") == "off" and command.own["tracker"] != "shadow":
        raise Wrong("-fcairn-save=off is for -fcairn-tracker=shadow")


def check_hybrid(command: Command) -> None:
    """Page mode: pages of the program alone, one thread, functions in two versions."""
    off = [f"-fcairn-{name}=off" for name in ("save", "stack", "clone", "wrap", "heap")
           if command.switches.get(name) == "off"]  # fmt: skip
    words = {
        "-fcairn-threads": (command.threads(), "other threads cannot be stopped at the switch"),
        "-fcairn-unit": (command.links() and command.per_unit(), "it needs the whole program"),
        "-shared": (command.links() and command.partial(), "it needs the whole program"),
        "-fcairn-complete": (command.complete, "all of libc's state has its hooks there"),
        "-static-pie": (command.has("-static-pie"), "libc's pages lie among the program's"),
        "-fcairn-guard=on": (command.switches.get("guard") == "on",
                             "code without hooks guards nothing"),
        **{word: (True, "page mode relies on what that leaves out") for word in off},
    }  # fmt: skip
    for word, (given, why) in words.items():
        if given:
            raise Wrong(f"-fcairn-hybrid and {word} do not go together: {why}")


def refuse(path: Path, line: str) -> None:
    if not (read(path) or b"").startswith(b"!<arch>"):
        raise Wrong(f"{line}: compile all with the same")
    # It may be that nothing of it is linked.
    print(f"cairn-cc: warning: something in {line}", file=sys.stderr)


def check_bitcode(command: Command) -> None:
    """What a newer LLVM has written may mean something else to the one that links. ThinLTO has no
    place for the pass."""
    for path in command.paths():
        version = bitcode_version(path)
        if version > LLVM:
            refuse(path, f"{path} has bitcode of LLVM {version}; this link is by LLVM {LLVM}")
        if for_thin_lto(path):
            refuse(path, f"{path} has bitcode for -flto=thin, which gets no hooks (cairn-cc makes "
                   "bitcode for -flto=full)")


def check_objects(command: Command) -> None:
    """Code with hooks must be made for the run-time of this link; other code is reported."""
    want = {"version": "version_@CRN_RT_ABI@", "hooks": command.kinds()[0]}
    if len(command.kinds()) > 1:
        want["tags"] = "tags_epoch" if command.tags == "epoch" else "tags_one"
    told = command.natives() if command.report or command.warn_uncovered else []
    for path in command.paths():
        code = native_code(path) or b""
        if path in told and lacks_hooks(path):
            print(f"cairn: code without hooks: {path}", file=sys.stderr)
        elif (path.suffix == ".o" and b"__cairn_abi_" not in code and not command.profile
              and any(name in code for name in BEGINS)):  # fmt: skip
            print(f"cairn-cc: warning: {path} takes checkpoints, and has no hooks: what it stores "
                  "does not come back", file=sys.stderr)  # fmt: skip
        words = {word.decode() for word in MADE_FOR.findall(code)}.difference(want.values())
        if "hybrid" in command.switches and path.suffix == ".so" and b"__cairn_abi_" in code:
            raise Wrong(f"-fcairn-hybrid: {path} has hooks, too: page mode tracks the "
                        "memory of one program, so link it statically")
        if not words:
            continue
        ours = {want[family(word)] for word in words if family(word) in want}
        theirs, these = (" ".join(sorted(map(options_of, w))) for w in (words, ours))
        refuse(path, f"{path} has hooks for {theirs}; this link is for {these}")


def warn_of_wraps(command: Command) -> None:
    """Functions that the linker and the run-time both wrap."""
    code = read(Path(library("libcairn_rt_libc.a"))) or b""
    for name in dict.fromkeys(command.wrapped):
        if command.switches.get("wrap") != "off" and f"\0__cairn_wrap_{name}\0".encode() in code:
            print(f"cairn-cc: warning: --wrap={name}: calls go to the run-time's wrapper of {name}"
                  f", which need not call yours; let callers name yours (-D{name}=...)",
                  file=sys.stderr)  # fmt: skip


def library(name: str) -> str:
    """A file beside this one: bin/../lib, in the build tree as in an installed copy."""
    base = Path(__file__).resolve().parent.parent
    for folder in ("lib", LIBRARY_DIR):
        path = base / folder / name
        if path.exists():
            return str(path)
    if name.startswith(NARROW):
        raise Wrong("-m32 needs a 32-bit libc when Cairn is built: scripts/install_deps.sh "
                    "compiler-32, then build it anew")
    if name == MUSL:
        raise Wrong("-fcairn-complete needs a libc with hooks: scripts/build_musl.py --build "
                    f"{base} --compiler {Path(__file__).name}")
    raise Wrong(f"{name} is missing beside {base}: build or install all of Cairn")


def is_cxx(name: str, command: Command) -> bool:
    """May it compile C++?"""
    return name.startswith("cairn-c++") or any(
        word.endswith(CXX_ENDS) or word.startswith(("c++", "-xc++")) for word in command.clang)


def arguments(command: Command, cxx: bool) -> list[str]:
    plugin = library(PASS)
    words: list[str] = [] if command.per_unit() else ["-flto=full"]
    if command.per_unit() or command.loops or (cxx and command.switches.get("wrap") != "off"):
        # A plugin for the compiler.
        words += [f"-fpass-plugin={plugin}"]
    narrow = command.narrow()
    if not command.has("-fPIC", "-fpic", "-fpie", *(("-fPIE",) if narrow else ())):
        words += ["-fno-pie"] if narrow else ["-fPIE"]
    for site in command.sites:
        # The pass comes after all inlining.
        words += ["-mllvm", f"-force-attribute={SITE.fullmatch(site)[1]}:noinline"]
    if command.switches.get("wrap") != "off":
        # Members of libstdc++'s templates are the program's.
        words += ["-isystem", library("cairn-cxx")]
    if command.complete:
        words += ["-nostdlibinc", "-isystem", library(MUSL) + "/include"]
    words += command.clang
    if any(w.startswith(("-fprofile-generate", "-fcs-profile-gen")) for w in command.flags):
        # Lists of values are written by the profile's run-time, which has no hooks.
        words += ["-mllvm", "-disable-vp"] if "-disable-vp" not in command.clang else []
        words += ["-Wl,-mllvm,-disable-vp"]
    if not command.links():
        return words + ["-Qunused-arguments"]
    words += [f"--ld-path={LLD}", "-Qunused-arguments"]
    if not command.profile:  # bitcode may be among units that have their hooks
        words += [f"-Wl,--load-pass-plugin={plugin}"]
    words += ["-Wl,--lto-O0"] if command.probes() and not command.per_unit() else []
    if command.partial():
        return words
    words += ["-x", "none"]  # what follows is of no language that the user has named
    if command.complete:
        words = complete_link(command, words)
    elif narrow:
        words += ["-no-pie", f"-Wl,--image-base={NARROW_AT}"]
    elif not command.has("-static-pie"):
        words += ["-pie"]
    if command.has("-static-pie", "-static") and not command.complete:
        # Or what the program has allocated would be freed by libc's own.
        words += [f"-Wl,--wrap={name}" for name in ("free", "realloc", "malloc_usable_size")]
    if command.has("-nodefaultlibs", "-nostdlib"):  # what the run-time needs to unwind
        words += ["-lgcc_eh"] if command.has("-static-pie", "-static") else [
            "-Wl,--as-needed", "-lgcc_s", "-Wl,--no-as-needed"]  # fmt: skip
    if command.profile:
        return words + [library("libcairn_rt_loops.a"), library("libcairn.a"),
                        "-Wl,--export-dynamic-symbol=__cairn_*"]  # fmt: skip
    if command.keep:
        words += [f"-Wl,--defsym=__cairn_site_keep={command.keep}"]
    if command.loops and command.per_unit() and not command.may_lack_sites():
        # The link sees no bitcode; units that have a site define it.
        words += ["-Wl,--defsym=__cairn_loops_found=__cairn_loop_of_the_profile"]
    folder = f"{NARROW}/" if narrow else ""
    kinds = (f"{folder}libcairn_rt_{kind}.a" for kind in command.kinds())
    return words + [
        "-Wl,--whole-archive", *map(library, kinds), "-Wl,--no-whole-archive",
        *(library(f"{folder}libcairn{part}.a") for part in ("_rt_libc", "_rt", "")),
        "-Wl,--export-dynamic-symbol=__cairn_*",
        # lld defines what is asked for before it compiles bitcode, and the run-time comes after.
        "-Wl,-u,__bss_start", "-Wl,-u,_end",
    ]  # fmt: skip


def complete_link(command: Command, words: list[str]) -> list[str]:
    """With musl in place of the system's libc: before the run-time, which stands in for some."""
    lib = library(MUSL) + "/lib"
    # What the pass will call is linked before it runs: libc comes in as bitcode.
    called = ["__cairn_site"] if command.sites or command.loops else []
    # And births and ends of threads, which the run-time calls by weak names (wrap_musl.c).
    called += ["__clone", "__unmapself"]
    return [*words[:1], "-nostdlib", "-static-pie", f"-L{lib}", f"{lib}/rcrt1.o", f"{lib}/crti.o",
            *words[1:], *(f"-Wl,-u,{name}" for name in called), f"{lib}/libc.a", f"{lib}/crtn.o",
            "-lgcc"]  # fmt: skip


def main() -> int:
    name = Path(sys.argv[0]).name
    clang = CLANGXX if name.startswith("cairn-c++") else CLANG
    try:
        command = Command(sys.argv[1:])
        check(command)
        if command.links():
            check_bitcode(command)
        if command.complete and name.startswith("cairn-c++"):
            raise Wrong("-fcairn-complete is for C: there is no libstdc++ for its libc")
        if command.links() and not command.partial():
            check_objects(command)
            warn_of_wraps(command)
        command.ask_for_loops()
        own = command.clang if command.prints else arguments(command, is_cxx(name, command))
    except Wrong as wrong:
        print(f"{name}: {wrong}", file=sys.stderr)
        return 1
    if "--help" in sys.argv[1:]:
        print(HELP, flush=True)
    whole = command.links() and not command.partial() and not command.per_unit()
    try:
        execute([clang, *own], {
            "CAIRN_PASS": command.pass_options(whole),
            "CAIRN_NATIVE": "\n".join(map(str, command.natives())),
            "CAIRN_LOOPS": "\n".join(command.loops),
            "CAIRN_LOOPS_ELSEWHERE": "\n".join(command.loops_elsewhere() if whole else []),
        })  # fmt: skip
    except OSError as error:
        print(f"{name}: {clang}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
