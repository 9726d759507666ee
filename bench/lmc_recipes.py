# SPDX-License-Identifier: MIT
"""
How the programs of `make bench BENCH=lmc` are built from Debian's sources: what a user of cairn-cc
would type. lmc_programs.py does it. Each has its sites at the top of its loop over requests, or at
one inner loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from debian_source import STORE

NOTHING = "nothing saved"  # such a program can open no session
IDLE_LOG = "undolog, no session"  # its hooks append to a page that nobody reads

# LMC, Figures 8 to 10: hooks of shadow with more and more left out; hooks that save nothing.
SWITCHES = {
    "no optimisation": (),
    "redundant": ("redundant", "calls"),
    "and transient": ("stack", "fresh"),
    "and aggregated": ("aggregate", "segments"),
    "and loops": ("loops",),
    NOTHING: (),
}


def _switched() -> dict[str, str]:
    every = [name for names in SWITCHES.values() for name in names]
    on: tuple[str, ...] = ()
    found = {}
    for row, names in SWITCHES.items():
        on += names
        off = [f"-fcairn-{name}=off" for name in every if name not in on]
        found[row] = " ".join(["-fcairn-report", *off])
    found[NOTHING] += " -fcairn-save=off"
    return found


SWITCHED = _switched()

# Options of cairn-cc of each variant of a program: None: clang alone.
VARIANTS: dict[str, str | None] = {
    "plain": None,
    "shadow": "",
    "undolog": "-fcairn-tracker=undolog",
    NOTHING: SWITCHED[NOTHING],
}

# Of programs that take no checkpoints (LMC, section V-B).
CLONES = {"hooks alone": "", "two versions": "-fcairn-clone=on -fcairn-report"}

REGIONS = {f"{1 << shift} B": f"-fcairn-region={1 << shift}" for shift in range(4, 13)}


# What a source brings along counts as newer than what Debian has changed: nothing is made anew.
GENERATED = (
    "find . -name aclocal.m4 -exec touch {} + && sleep 1 &&"
    " find . '(' -name configure -o -name Makefile.in -o -name config.h.in ')' -exec touch {} +"
)


@dataclass(frozen=True)
class Recipe:
    """How one program is built. Its commands have CC, FLAGS (with the sites), STORE and JOBS."""

    name: str
    source: str  # Debian's source package
    sites: tuple[str, ...]
    binary: str  # in the source's folder
    make: str  # also makes the binary alone anew when it is missing
    configure: str = "true"
    prepare: str = "true"  # before: what a release tarball has and Debian's source has not
    packages: tuple[str, ...] = ()
    parts: dict[str, str] = field(default_factory=dict)  # other sources, by their place in it
    options: str = ""  # of cairn-cc
    flags: str = ""  # of all compilers
    stands_for: str = ""  # a program of the papers whose source Debian's archive does not give out

    def path(self, variant: str) -> Path:
        return STORE / "bin" / f"{self.name}-{variant.replace(' ', '-')}"

    def refusal(self, variant: str) -> Path:
        """A file: why there is no such variant."""
        return self.path(variant).with_suffix(".refused")

    def refused(self, variant: str) -> str | None:
        path = self.refusal(variant)
        return path.read_text() if path.exists() else None

    def built(self) -> bool:
        return all(
            self.path(variant).exists() or self.refused(variant) for variant in VARIANTS
        )


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "lua",
            "lua5.4",
            ("os_clock",),
            "lua",
            "cd src && ls *.c | grep -v '^luac.c$' |"
            " xargs $CC $FLAGS -DLUA_USE_LINUX -DLUA_COMPAT_5_3 -o ../lua -lm -ldl",
            prepare='echo \'#define DEB_HOST_MULTIARCH "."\' > src/lua5.4-deb-multiarch.h',
        ),
        Recipe(
            "nginx",
            "nginx",
            ("epoll_wait:return",),
            "objs/nginx",
            'make -f objs/Makefile CC="$CC" LINK="$CC" binary',
            './configure --with-cc="$CC" --with-cc-opt="$FLAGS" --with-ld-opt="$FLAGS"'
            " --without-http_rewrite_module --without-http_gzip_module",
        ),
        Recipe(
            "lighttpd",
            "lighttpd",
            ("epoll_wait:return",),
            "src/lighttpd",
            'make -C src versionstamp parsers lighttpd CC="$CC" LDFLAGS="$FLAGS"',
            './configure CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS" --without-pcre2 --without-zlib'
            " --without-bzip2",
        ),
        Recipe(
            "sqlite",
            "sqlite3",
            ("speedtest1_exec", "speedtest1_run"),
            "speedtest1",
            'make -o sqlite3.c speedtest1 BCC="$CC $FLAGS" TCC="$CC $FLAGS -I. -Isrc"',
            './configure CC="$CC" CFLAGS="$FLAGS" --disable-shared --disable-readline'
            " && make sqlite3.c",
            packages=("tcl",),
        ),
        Recipe(
            "hmmer",
            "hmmer",
            ("p7_pli_NewSeq",),
            "src/hmmsearch",
            'make -C easel CC="$CC" && make -C src CC="$CC" libhmmer.a hmmsearch',
            './configure CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS" --disable-threads',
            prepare="autoconf && cd easel && autoconf",
            packages=("autoconf", "libdivsufsort-dev"),
        ),
        Recipe(
            "redis",
            "redis",
            ("epoll_wait:return",),
            "src/redis-server",
            'make -C src redis-server CC="$CC $FLAGS" MALLOC=libc BUILD_TLS=no'
            ' OPTIMIZATION="$FLAGS"',
            # Its background threads sleep but for UNLINK and files that are to be closed.
            options="-fcairn-site-threads=one",
        ),
        Recipe(
            "httpd",
            "apache2",
            ("ap_process_request",),
            "httpd",
            'make httpd CC="$CC"',
            "./configure --with-included-apr --with-mpm=prefork --disable-shared --enable-static"
            ' --enable-modules=none --enable-authz-core=static --enable-unixd=static CC="$CC"'
            ' CFLAGS="$FLAGS" LDFLAGS="$FLAGS" && make -j$JOBS',
            # Debian's apr asks for the folder that it is installed in, and its rules say the date.
            prepare="sed -i 's,^APR_SOURCE_DIR=.*,APR_SOURCE_DIR=@apr_srcdir@,'"
            """ srclib/apr/apr-config.in && sed -i 's/BUILD_DATETIME/"today"/' server/buildmark.c"""
            " && ./buildconf",
            packages=("autoconf", "libtool", "libpcre2-dev", "libexpat1-dev"),
            parts={"srclib/apr": "apr", "srclib/apr-util": "apr-util"},
        ),
        Recipe(
            "postgres",
            "postgresql-15",
            ("ReadCommand:return",),
            "src/backend/postgres",
            'make -C src/backend postgres CC="$CC"',
            './configure --prefix="$STORE/postgres/installed"'
            ' --bindir="$STORE/postgres/installed/programs" --without-readline --without-zlib'
            ' CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS"'
            # What initdb needs, and itself.
            " && for part in port common timezone backend backend/utils/mb/conversion_procs"
            " backend/snowball interfaces/libpq fe_utils bin/initdb pl/plpgsql;"
            " do make -j$JOBS -C src/$part install MAKELEVEL=0 || exit 1; done",
        ),
        Recipe(
            "proftpd",
            "proftpd-dfsg",
            ("pr_cmd_read:return",),
            "proftpd",
            # Its sessions end by exit, not _exit: figures are printed there.
            'rm -f src/session.o; make proftpd CC="$CC -DPR_DEVEL_PROFILE"',
            './configure CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS" --disable-auth-pam'
            " --disable-ident --disable-cap --disable-dso --prefix=/nonexistent",
        ),
        Recipe(
            "bind",
            "bind9",
            ("ns__client_request",),
            "bin/named/named",
            # It is called by its attribute alone: the linker must be told that it is wanted.
            'make -C bin/named named CC="$CC" LDFLAGS="$FLAGS -Wl,-u,isc__initialize"',
            '(cd libuv && ./configure CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS" --disable-shared'
            ' && make -j$JOBS libuv.la) && ./configure CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS"'
            ' LIBUV_CFLAGS="-I$PWD/libuv/include"'
            ' LIBUV_LIBS="$PWD/libuv/.libs/libuv.a -lpthread -ldl -lrt" --disable-shared'
            " --enable-static --disable-doh --disable-linux-caps --disable-geoip --without-libxml2"
            " --without-json-c --without-zlib --without-jemalloc --without-gssapi --without-lmdb"
            " && make -j$JOBS -C lib && make bind.keys.h && make -j$JOBS -C bin/named named",
            # libuv takes the tools of the folder above; static libraries are for developers alone.
            prepare="(cd libuv && ./autogen.sh) && autoreconf -fi &&"
            """ sed -i 's/^if test "$enable_static" != "no" &&/if false \&\&/' configure""",
            packages=("autoconf", "automake", "libtool", "libssl-dev", "pkg-config"),
            parts={"libuv": "libuv1"},
            options="-fcairn-threads",  # a loop for the network, one for timers
        ),
        Recipe(
            "ftpd",
            "inetutils",
            ("telnet_fgets:return",),
            "ftpd/ftpd",
            'rm -f ftpd/ftpd; make -C ftpd ftpd CC="$CC"',
            './configure CC="$CC" CFLAGS="$FLAGS" LDFLAGS="$FLAGS" --disable-clients'
            " --disable-servers --enable-ftpd --without-pam"
            " && for part in lib libinetutils libls ftpd;"
            " do make -j$JOBS -C $part || exit 1; done",
            # Guests are who the server is, where it is; figures are printed by exit.
            prepare=f"""{GENERATED} && sed -i 's/getpwnam (name)/getpwuid (getuid ())/'"""
            """ ftpd/auth.c && sed -i 's/p->pw_dir/"."/; s,sgetsave ("/"),sgetsave ("."),'"""
            """ ftpd/auth.c && sed -i 's/chroot (/chdir (/; s/ _exit (status)/ exit (status)/'"""
            " ftpd/ftpd.c",
            stands_for="pure-ftpd",
        ),
        Recipe(
            "busybox",  # its ftpd
            "busybox",
            ("cmdio_get_cmd_and_arg:return",),
            "busybox_unstripped",
            "$CC $FLAGS -o busybox_unstripped applets/applets.o"
            " -Wl,--start-group $(find * -name lib.a) -Wl,--end-group",
            "make allnoconfig && sed -i -E 's/^# CONFIG_(FTPD|LFS) is not set/CONFIG_\\1=y/'"
            ' .config && (yes "" || true) | make oldconfig && make -j$JOBS busybox_unstripped'
            ' CC="$CC $FLAGS" LD="$(command -v ld.lld-22 ld.lld-19 | head -n 1)" SKIP_STRIP=y',
            prepare="sed -i 's/if (chroot(basedir) == 0)/if (0)/' networking/ftpd.c",
            stands_for="vsftpd",
        ),
        Recipe(
            "gnugo",
            "gnugo",
            ("attack",),
            "interface/gnugo",
            'rm -f interface/gnugo; make -C interface gnugo CC="$CC"',
            './configure CC="$CC" CFLAGS="$FLAGS -fcommon -w" LDFLAGS="$FLAGS" --without-curses'
            " --without-readline && make -j$JOBS",
        ),
        Recipe(
            "sjeng",
            "sjeng",
            ("eval",),
            "sjeng",
            'rm -f sjeng; make sjeng CC="$CC"',
            './configure CC="$CC" CFLAGS="$FLAGS -std=gnu89 -fcommon -w" LDFLAGS="$FLAGS"'
            " && make -j$JOBS",
            packages=("libgdbm-dev",),
        ),
        Recipe(
            "bzip2",
            "bzip2",
            ("BZ2_compressBlock",),
            "bzip2",
            "xargs -n 100 $CC $FLAGS -D_FILE_OFFSET_BITS=64 -o bzip2 <<< 'blocksort.c huffman.c"
            " crctable.c randtable.c compress.c decompress.c bzlib.c bzip2.c'",
        ),
        Recipe(
            "libquantum",
            "libquantum",
            ("quantum_decohere",),
            "shor-program",
            "ls *.c | grep -v -e grover -e ising -e quob |"
            " xargs $CC $FLAGS -idirafter . -DHAVE_CONFIG_H -o shor-program -lm",
            './configure CC="$CC" CFLAGS="$FLAGS" --without-lapack',
            prepare="sed -i 's/srand(time(0))/srand(26)/' shor.c",  # the same run each time
        ),
        Recipe(
            "perl",
            "perl",
            ("Perl_pp_time",),
            "miniperl",
            'rm -f lib/buildcustomize.pl; make miniperl CC="$CC" LD="$CC"',
            './Configure -des -Uusethreads -Dcc="$CC" -Dld="$CC" -Doptimize="$FLAGS"'
            ' -Aldflags="$FLAGS" -Dnoextensions="*"',
        ),
        Recipe(
            "x264",
            "x264",
            ("x264_8_encoder_encode",),
            "x264",
            'make x264 CC="$CC" LD="$CC -o "',
            'CC="$CC" ./configure --disable-asm --disable-thread --disable-opencl --disable-lavf'
            " --disable-swscale --disable-ffms --disable-gpac --disable-lsmash --bit-depth=8"
            ' --enable-pic --extra-cflags="$FLAGS" --extra-ldflags="$FLAGS"',
        ),
    )
}

# 32-bit programs, which lie at a fixed place: with and without hooks. hmmer and perl need libraries
# that Debian has for 32-bit systems alone.
FIXED = "-m32 -fno-pie -no-pie"
RECIPES_32 = {
    f"{name}-32": replace(RECIPES[name], name=f"{name}-32", flags=FIXED)
    for name in ("bzip2", "gnugo", "libquantum", "lua", "sqlite", "x264")
}
