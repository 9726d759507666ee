#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions outside of the program's bitcode, by their names: libc's, others of such names, listed.

    test_names.py CAIRN_CC ROOT [TEST...]
"""

import json
import os
import subprocess
import sys
import unittest

import test_cairn_cc


class Names(test_cairn_cc.Compiling):
    def test_wrapped_functions_of_its_own(self) -> None:
        """What a wrapper names stays, although the program's calls were all inlined."""
        self.write("own.c", """
            #include <stdio.h>
            #include <string.h>
            size_t strlcpy(char *to, const char *from, size_t n)
            {
                (void)n;
                return strlen(strcpy(to, from));
            }
            void sincos(double x, double *sine, double *cosine) { *sine = *cosine = x; }
            int main(int argc, char **argv)
            {
                double sine, cosine;
                char text[99];
                memmove(text, argv[0], (size_t)argc);
                sincos(argc, &sine, &cosine);
                printf("%zu %g", strlcpy(text, "own", 9), sine + cosine);
            }""")
        for words in ((), ("-fcairn-tracker=undolog", "-fvisibility=hidden")):
            self.cc("-O2", "-fno-builtin", "-o", "own", "own.c", *words)
            self.assertEqual(self.run_built("own"), "3 2")

    def test_site_that_only_the_link_knows(self) -> None:
        """A function that is called once, and would be inlined there."""
        self.write("caller.c", """
            void turn(int i);
            int main(void)
            {
                for (volatile int i = 0; i < 9; i++)
                    turn(i);
            }""")
        self.write("turn.c", "volatile int turns; void turn(int i) { turns += i; }")
        for level in ("-O0", "-O2"):
            self.cc(level, "-c", "caller.c", "turn.c")
            self.cc(level, "-fcairn-site=turn", "caller.o", "turn.o")
            done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True,
                                  env={"CAIRN_STATS": "json"})  # fmt: skip
            self.assertEqual(json.loads(done.stderr)["checkpoints"], 9)

    def write_names(self) -> None:
        """Calls of functions that have libc's names, and other arguments; and those functions."""
        self.write("calls.c", """
            int printf(const char *, ...), getline(char *, int), select(const char *, int);
            int main(void)
            {
                char line[9];
                int n = getline(line, sizeof(line));
                printf("%d %s %d", n, line, select("abc", 2));
                return 0;
            }""")
        self.write("names.c", """
            int getline(char *to, int n)
            {
                int i;
                for (i = 0; i < 3 && i < n; i++)
                    to[i] = "own"[i];
                to[i] = 0;
                return i;
            }
            int select(const char *list, int n) { return list[n]; }""")

    def test_functions_of_libc_names(self) -> None:
        """In another unit, or a library."""
        self.write_names()
        for words in (("-O0",), ("-O2", "-fcairn-unit"), ("-O1", "-fcairn-tracker=undolog")):
            self.cc("-w", "calls.c", "names.c", *words)
            self.assertEqual(self.run_built(), "3 own 99")
        for words in (("-O2",), ("-O1", "-fcairn-unit")):
            self.cc("-w", "-fPIC", "-shared", "names.c", "-o", "libnames.so", *words)
            self.cc("-w", "calls.c", str(self.folder / "libnames.so"), *words)
            self.assertEqual(self.run_built(), "3 own 99")

    def test_native_functions_of_libc_names(self) -> None:
        """The same without hooks: not what libc's would write is kept, and it is said."""
        self.write_names()
        self.native("cc", "-fPIC", "-c", "names.c")
        self.native("ar", "rc", "libnames.a", "names.o")
        self.native("cc", "-shared", "names.o", "-o", "libnames.so")
        for name in ("names.o", "libnames.a", "./libnames.so"):
            for words in (["-O1"], ["-O2", "-fcairn-tracker=undolog"], ["-fcairn-unit"]):
                said = self.cc("-w", "-fcairn-report", "calls.c", name, *words).stderr
                self.assertEqual(self.run_built(), "3 own 99")
                self.assertIn("code without hooks: " + name.removeprefix("./"), said)
                for function in ("getline", "select"):
                    self.assertRegex(said, f"{function} is of .*, and not taken for libc's")
                    self.assertIn("is not covered: " + function, said)

    def test_native_functions_like_libcs(self) -> None:
        """By its arguments it is libc's function: what that writes is kept."""
        self.write("uses.c", """
            #include <stdio.h>
            #include <string.h>
            #include <cairn/cairn.h>
            size_t strlcpy(char *to, const char *from, size_t n);
            static char text[300];
            int main(int argc, char **argv)
            {
                struct cairn_options o = CAIRN_OPTIONS_INIT;
                cairn_t *c;
                uint64_t id;
                if (cairn_open(&c, &o) < 0 || cairn_checkpoint(c, &id) < 0)
                    return 3;
                strlcpy(text, argv[0], sizeof(text));
                if (!text[0] || cairn_rewind(c, id) < 0)
                    return 4;
                printf("%d", text[0]);
            }""")
        self.write("copy.c", """
            #include <string.h>
            size_t strlcpy(char *to, const char *from, size_t n)
            {
                strncpy(to, from, n);
                return strlen(from);
            }""")
        self.native("cc", "-c", "copy.c")
        said = self.cc("-O1", "-fcairn-report", "uses.c", "copy.o").stderr
        self.assertIn("strlcpy is of copy.o, and taken for libc's", said)
        self.assertEqual(self.run_built(), "0")

    def test_listed_functions_of_libc_names(self) -> None:
        """A unit that is compiled alone is told by a list."""
        self.write_names()
        self.write("own.list", "fun:getline=uninstrumented\nfun:select=uninstrumented\n")
        self.native("cc", "-c", "names.c")
        self.cc("-w", "-fcairn-unit", "-c", "calls.c", "-fcairn-abilist=own.list")
        self.cc("-fcairn-unit", "calls.o", "names.o")
        self.assertEqual(self.run_built(), "3 own 99")

    def test_wrappers_of_the_program(self) -> None:
        """They have hooks, and call what they stand for."""
        self.write("calls.c", """
            #include <stdio.h>
            #include <cairn/cairn.h>
            void of_library(char *);
            static char text[4] = "abc";
            int main(void)
            {
                struct cairn_options o = CAIRN_OPTIONS_INIT;
                cairn_t *c;
                uint64_t id;
                if (cairn_open(&c, &o) < 0 || cairn_checkpoint(c, &id) < 0)
                    return 3;
                of_library(text);
                printf("%s ", text);
                return cairn_rewind(c, id) < 0 || printf("%s", text) != 3;
            }""")
        self.write("library.c", "void of_library(char *a) { a[1] = 'x'; }")
        self.write("wrapper.c", "void of_library(char *); void __cairn_wrap_of_library(char *a)"
                   " { a[1]++; of_library(a); a[0] = 'w'; }")  # fmt: skip
        self.write("custom.list", "fun:of_library=custom\n")
        self.native("cc", "-fPIE", "-c", "library.c")
        for words in (["-O1"], ["-O2", "-fcairn-tracker=undolog"], ["-O1", "-fcairn-unit"]):
            self.cc("calls.c", "wrapper.c", "library.o", "-fcairn-abilist=custom.list", *words)
            self.assertEqual(self.run_built(), "wxc abc")

    def test_abi_lists(self) -> None:
        self.write("unknown.c", "#include <stdio.h>\nvoid of_library(char *); static char a[9];"
                   "int main(void) { of_library(a); fputs(a, stdout); }")  # fmt: skip
        self.write("library.c", "void of_library(char *a) { a[1] = 'x'; }")
        self.write("known.list", "fun:of_lib*=functional\n")
        self.write("strict.list", "fun:of_library=uninstrumented\n")
        self.write("custom.list", "fun:of_library=custom\n")
        self.write("wrapper.c", "void of_library(char *); void __cairn_wrap_of_library(char *a)"
                   " { of_library(a); a[0] = 'w'; }")  # fmt: skip
        self.native("cc", "-c", "-fPIE", "library.c", "wrapper.c")
        sentence = "is not covered: of_library"
        report = ("-O2", "-fcairn-report", "unknown.c", "library.o")
        self.assertIn(sentence, self.cc(*report).stderr)
        self.assertNotIn("covered: fputs", self.cc(*report).stderr)
        self.assertNotIn(sentence, self.cc(*report, "-fcairn-abilist=known.list").stderr)
        both = ("-fcairn-abilist=known.list", "-fcairn-abilist=strict.list")
        self.assertIn(sentence, self.cc(*report, *both).stderr)
        done = self.cc("-fcairn-warn-uncovered", "unknown.c", "library.o")
        self.assertIn("warning: 1 external functions", done.stderr)
        self.cc("-O2", "unknown.c", "library.o", "wrapper.o", "-fcairn-abilist=custom.list")
        self.assertEqual(self.run_built(), "wx")
        self.assertIn("nothing.list", self.cc("-fcairn-abilist=nothing.list", "unknown.c",
                                              status=1).stderr)  # fmt: skip


if __name__ == "__main__":
    test_cairn_cc.CAIRN_CC, test_cairn_cc.ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
