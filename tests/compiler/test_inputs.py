#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What cairn-cc reads: inputs of all kinds, and the words that name them.

    test_inputs.py CAIRN_CC ROOT [TEST...]
"""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import test_cairn_cc


class Inputs(test_cairn_cc.Compiling):
    def test_names_behind_two_dashes(self) -> None:
        self.write("-odd.c", test_cairn_cc.PART)
        self.cc("-O1", "-o", "a.out", "--", "program.c", "-odd.c")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)

    def test_headers(self) -> None:
        """What is compiled of them is no program."""
        self.write("some.h", "#define SOME 1\n")
        self.write("uses.c", "#ifndef SOME\n#error\n#endif\nint main(void) { return 0; }")
        for words in (["some.h"], ["-x", "c-header", "some.h", "-o", "some.h.gch"],
                      ["-xc-header", "some.h", "-fcairn-unit"]):  # fmt: skip
            self.cc(*words)
            self.cc("-include", "some.h", "uses.c")
            self.assertEqual(self.run_built(), "")
        self.write("some.cppm", "export module some;\nexport int f() { return 1; }")
        self.cc("-std=c++20", "--precompile", "some.cppm", "-o", "some.pcm")

    def test_no_default_libraries(self) -> None:
        """Those that are named may be less than the run-time needs."""
        self.cc("-nodefaultlibs", "program.c", "part.c", "-lc", "-lgcc")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)
        self.cc("-static-pie", "-nodefaultlibs", "program.c", "part.c", "-lc", "-lgcc")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)

    def test_probes_of_old_configure_scripts(self) -> None:
        """The name is only compared with itself, which a whole program can do without it."""
        self.write("conftest.c", "char sin();\nchar (*f)() = sin;\n"
                   "int main(void) { return f != sin; }")  # fmt: skip
        for words in ([], ["-O2"], ["-O2", "-fcairn-hybrid"], ["-O2", "-fcairn-unit"]):
            self.cc("-w", *words, "-o", "conftest", "conftest.c", status=1)
            self.cc("-w", *words, "-o", "conftest", "conftest.c", "-lm")
            self.assertEqual(self.run_built("conftest"), "")
        self.cc("-w", "-O2", "-c", "conftest.c")
        self.cc("-o", "conftest", "conftest.o", status=1)

    def test_site_that_is_nowhere(self) -> None:
        self.write("site.c", "volatile int n;\nvoid handle(void) { n++; }\n"
                   "int main(void) { handle(); return 0; }")  # fmt: skip
        self.write("other.c", "int main(void) { return 0; }")
        warning = "-fcairn-site=hanlde: no such function is in this program"
        for words in ([], ["-fcairn-tracker=undolog"], ["-O2", "-g"]):
            said = self.cc("-fcairn-site=hanlde", *words, "-o", "site", "site.c").stderr
            self.assertEqual(said.count(warning), 1, said)
            sites = ("-fcairn-site=hanlde", "-fcairn-site=handle")
            self.assertEqual(self.cc(*sites, *words, "-o", "site", "site.c").stderr, "")
        self.write("conftest.c", "int main(void) { return 0; }")
        self.assertEqual(self.cc("-fcairn-site=handle", "-o", "probe", "conftest.c").stderr, "")
        self.cc("-fcairn-site=handle", "-shared", "-fPIC", "-o", "libsite.so", "site.c")
        used = self.cc("-fcairn-site=handle", "-o", "other", "other.c", "./libsite.so")
        self.assertEqual(used.stderr, "")
        lib = self.cc("-fcairn-site=nosuch", "-shared", "-fPIC", "-o", "libsite.so", "site.c")
        self.assertEqual(lib.stderr, "")

    def test_quote_left_open(self) -> None:
        self.write("words", "-O2 \"program.c")
        self.assertIn("cairn-cc: @words: No closing quotation", self.cc("@words", status=1).stderr)

    def test_more_words_than_execve_takes(self) -> None:
        """For clang, and in what the pass is told of native files."""
        long = "x" * 200
        folder = self.folder / long
        folder.mkdir()
        names = []
        for i in range(800):
            names.append(f"{folder}/{i}.o")
            if i:
                os.link(f"{folder}/0.o", names[-1])
            else:
                self.native("cc", "-x", "c", "/dev/null", "-c", "-o", names[0])
        # libc's name, and another function: what the pass is told of the last object.
        self.write("own.c", "void regfree(int *w) { *w = 7; }")
        self.native("cc", "-c", "own.c", "-o", f"{folder}/own.o")
        self.write("calls.c", "void regfree(int *); int main(void) { int w; regfree(&w); "
                   "return w - 7 + D2999 + sizeof(QUOTED) - 4; }")  # fmt: skip
        words = [f"-DD{i}=0 -DE{i}={long * 4}" for i in range(3000)]
        self.write("words", "\n".join([*words, "-O1 '-DQUOTED=\"\\\\\\\"'\"'\"'\"'",
                                       "calls.c -fcairn-report", *names, f"{folder}/own.o"]))
        done = self.cc("@words")
        self.assertIn(f"regfree is of {folder}/own.o, and not taken for libc's", done.stderr)
        self.assertEqual(self.run_built(), "")

    def test_no_compiler(self) -> None:
        script = Path(test_cairn_cc.CAIRN_CC).read_text()
        self.write("cairn-cc", re.sub(r'^CLANG = .*', 'CLANG = "/none"', script, flags=re.M))
        os.chmod(self.folder / "cairn-cc", 0o755)
        (self.folder / "lib").symlink_to(Path(test_cairn_cc.CAIRN_CC).parent.parent / "lib")
        (self.folder / "bin").mkdir()
        os.rename(self.folder / "cairn-cc", self.folder / "bin/cairn-cc")
        done = self.cc("program.c", compiler=str(self.folder / "bin/cairn-cc"), status=1)
        self.assertEqual(done.stderr, "cairn-cc: /none: No such file or directory\n")

    def test_sanitizers(self) -> None:
        self.cc("-fsanitize=undefined", "-fsanitize-trap=all", "program.c", "part.c")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)
        for words in (["-fsanitize=undefined,address"], ["-fno-sanitize=all", "-fsanitize=thread"],
                      ["-fmemory-profile"], ["-fmemory-profile=folder"]):  # fmt: skip
            said = self.cc("-c", *words, "program.c", status=1).stderr
            self.assertIn("not restored with that; use it in a build by clang", said)
        for last in ("address", "all"):
            self.cc("-c", "-fsanitize=address", f"-fno-sanitize={last}", "program.c")

    def test_bitcode_for_thin_lto(self) -> None:
        self.cc("-O1", "-c", "-Xclang", "-flto=thin", "part.c")
        said = self.cc("program.c", "part.o", status=1).stderr
        self.assertIn(": part.o has bitcode for -flto=thin, which gets no hooks", said)
        self.native("ar", "rc", "libpart.a", "part.o")
        said = self.cc("program.c", "libpart.a", status=1).stderr
        self.assertIn("cairn: libpart.a(part.o at ", said)
        self.cc("-O1", "-c", "-flto=thin", "part.c")  # the word alone
        self.cc("program.c", "part.o")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)

    def test_bitcode_among_units(self) -> None:
        """The words of the compiler and of the link are not always the same."""
        for level in ("-O0", "-O2"):
            self.cc(level, "-c", "part.c")
            for word in ("-fcairn-unit", "-fno-lto"):
                self.cc(level, word, "program.c", "part.o")
                self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)

    def test_hooks_in_archives(self) -> None:
        """The report tells of code without hooks, wherever it is."""
        self.cc("-c", "part.c")
        self.cc("-c", "-fcairn-unit", "part.c", "-o", "unit.o")
        self.write("own.c", "int own;")
        native = "a_name_that_is_longer_than_fifteen.o"
        self.native("cc", "-c", "own.c", "-o", native)
        sentence = "code without hooks: libpart.a"
        for kind in ("rc", "rcT"):
            for members in (["part.o"], ["unit.o"], ["unit.o", native]):
                (self.folder / "libpart.a").unlink(missing_ok=True)
                self.native("ar", kind, "libpart.a", *members)
                said = self.cc("-fcairn-report", "program.c", "libpart.a").stderr
                self.assertEqual(sentence in said, native in members, (kind, members))

    def test_run_times_beside_another_libc(self) -> None:
        for word in ("-fsanitize=undefined", "--coverage", "-fprofile-generate",
                     "-fprofile-instr-generate"):  # fmt: skip
            said = self.cc("-fcairn-complete", word, "program.c", "part.c", status=1).stderr
            self.assertIn(f"clang's run-time for {word} needs glibc", said)

    def test_profiles(self) -> None:
        """Clang's own: nothing of it is written by functions without hooks."""
        self.write("empty.c", "int main(void) { return 0; }")
        said = subprocess.run([test_cairn_cc.CAIRN_CC, "-fprofile-generate", "empty.c"],
                              cwd=self.folder, capture_output=True, text=True).stderr  # fmt: skip
        if "libclang_rt" in said:
            self.skipTest("clang has no run-time for profiles")
        self.write("called.c", "void *memcpy(void *, const void *, unsigned long);\n"
                   "void called(int (*f)(void), char *to, long n) { memcpy(to, to + n, f()); }")
        for word in ("-fprofile-generate", "-fprofile-generate=there", "-fcs-profile-generate"):
            for words in ([], ["-mllvm", "-disable-vp"], ["-fcairn-unit"]):
                self.cc("-O2", word, *words, "-rdynamic", "program.c", "part.c", "called.c")
                self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)
                code = (self.folder / "a.out").read_bytes()
                self.assertFalse(b"\0__llvm_prf_vals\0" in code, (word, words))

    def test_wrapped_twice(self) -> None:
        self.write("w.c", "void *__wrap_malloc(unsigned long n) { return 0; }\n"
                   "long __wrap_stored(long v) { return v; }")  # fmt: skip
        sentence = "--wrap=malloc: calls go to the run-time's wrapper of malloc"
        for words in (["-Wl,--wrap=malloc"], ["-Wl,--wrap,malloc"],
                      ["-Xlinker", "--wrap", "-Xlinker", "malloc"]):  # fmt: skip
            self.assertIn(sentence, self.cc(*words, "program.c", "part.c", "w.c").stderr)
            self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)
        for words in (["-Wl,--wrap=stored"], ["-Wl,--wrap=malloc", "-fcairn-wrap=off"]):
            self.assertEqual(self.cc(*words, "program.c", "part.c", "w.c").stderr, "")

    def test_names_of_cxx(self) -> None:
        """By their symbols, as options take them, and as they are written."""
        self.write("in.cc", "namespace some { void out(int *); int *where; }\n"
                   "int main() { some::out(some::where); return 0; }")
        said = self.cc("in.cc", "-c", "-fcairn-unit", "-fcairn-report").stderr
        self.assertIn("not covered: _ZN4some3outEPi (some::out(int*))\n", said)
        self.assertIn("cairn: main: ", said)


if __name__ == "__main__":
    test_cairn_cc.CAIRN_CC, test_cairn_cc.ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
