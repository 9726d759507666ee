#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`cairn run` as a command: what it refuses before anything runs, with which words and status."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
CAIRN = str(BUILD / "bin" / "cairn")
VICTIMS = BUILD / "tests" / "agent"
WAITS = [sys.executable, "-c",
         "import select; [select.select([], [], [], 0.001) for _ in range(9)]; print('ran')"]
failures = 0


def run(*arguments: str, cairn: str = CAIRN, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run([cairn, "run", *arguments], capture_output=True, text=True, timeout=200,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def expect(condition: bool, text: str, got: object = "") -> None:
    global failures
    print("ok   " if condition else "FAIL ", text, "" if condition else got, flush=True)
    failures += not condition


def refused(status: int, words: str, *arguments: str) -> None:
    got = run(*arguments)
    right = got[0] == status and not got[1] and words in got[2]
    expect(right, f"{' '.join(arguments)[-60:]}: status {status}, '{words}'", got)


def test_named_files() -> None:
    """What is wrong, where, and nothing runs."""
    with tempfile.TemporaryDirectory() as folder:
        trace, bad = Path(folder) / "trace", Path(folder) / "bad"
        got = run("--at=wait", f"--trace={trace}", "--", *WAITS)
        expect(got == (0, "ran\n", "") and trace.stat().st_size > 100, "a trace is written", got)
        got = run("--at=wait", f"--strategy=oracle:profile={trace}", "--", "echo", "ran")
        expect(got == (0, "ran\n", ""), "a whole trace is a profile", got)
        whole = trace.read_bytes()
        middle = len(whole) // 2
        for content, why in (
            (b"", "byte 0: the trace is cut short"),
            (b"no trace at all, this", "byte 0: not a trace"),
            (whole[:-25], f"byte {len(whole) - 25}: the trace is cut short"),
            (whole + b"x", "there is something behind the trailer"),
            (whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :], "corrupt"),
        ):
            bad.write_bytes(content)
            for name in ("oracle", "oracle-count"):
                refused(2, f"profile {bad}: ", f"--strategy={name}:profile={bad}", "--", "true")
                refused(2, why, f"--strategy={name}:profile={bad}", "--", "true")
        refused(2, "profile /no/such: No such file", "--strategy=oracle:profile=/no/such",
                "--", "true")
        refused(2, f"profile {folder}: not a regular file",
                f"--strategy=oracle:profile={folder}", "--", "true")
        refused(2, "trace /no/such: No such file", "--trace=/no/such", "--", "true")
        refused(2, f"trace {folder}: Is a directory", f"--trace={folder}", "--", "true")


def test_command_line() -> None:
    refused(2, "unknown tracker: nonsense (auto, async, ", "--tracker", "nonsense", "--", "true")
    refused(2, "needs --surface all", "--recover", "--surface", "program", "--", "true")
    refused(2, "unknown strategy 'nonsense'", "--strategy", "nonsense", "--", "true")
    refused(2, "has no parameter 'x'", "--strategy", "decay:x=1", "--", "true")
    refused(2, "needs the trace", "--strategy", "oracle", "--", "true")
    test_named_files()
    refused(2, "needs the trace", "--strategy", "oracle-count", "--", "true")
    for option in (("--recover",), ("--trace", "t")):
        refused(2, "keeps no checkpoints", "--strategy", "oracle-count:profile=/dev/null",
                *option, "--", "true")
    refused(2, "no hot pages", "--tracker", "fork", "--strategy", "decay", "--", "true")
    for bad in ("nonsense", "reg:eax", "reg:rax+1", "word:", "word:rdi+", "word:rdi+x"):
        refused(2, f"unknown context: {bad}", "--context", bad, "--", "true")
    refused(2, "unknown site: nonsense", "--at", "nonsense", "--", "true")
    refused(2, "unknown site: func:", "--at", "func:", "--", "true")
    refused(2, "milliseconds", "--at", "timer:0", "--", "true")
    refused(2, "milliseconds", "--at", "timer:x", "--", "true")
    refused(2, "milliseconds", "--at", "timer:0.01", "--", "true")
    refused(2, "milliseconds", "--at", "timer:1.5.5", "--", "true")
    refused(2, "milliseconds", "--at", "timer:86400001", "--", "true")
    refused(2, "--commit needs --recover", "--commit=each", "--", "true")
    refused(2, "more than 16 sites", *["--at=wait"] * 17, "--", "true")
    refused(2, "number of hits", "--at", "wait/0", "--", "true")
    refused(2, "number of hits", "--at", "wait/x", "--", "true")
    refused(2, "from 1 to", "--keep", "0", "--", "true")
    refused(2, "from 1 to", "--keep", "65537", "--", "true")
    refused(2, "takes a size", "--memory-max", "12Q", "--", "true")
    refused(2, "takes a size", "--memory-max", "0", "--", "true")
    refused(2, "at least 1M", "--memory-max", "1023K", "--", "true")
    names = "(auto, bpf, bpf-images, perf, scan)"
    refused(2, f"unknown feed: nonsense {names}", "--feed", "nonsense", "--", "true")
    refused(2, "for tracker async", "--feed", "scan", "--tracker", "uffd", "--", "true")
    refused(2, "for tracker async", "--tracker", "fork", "--feed", "bpf", "--", "true")
    refused(2, "fork does not know", "--trace", "x", "--tracker", "fork", "--", "true")
    refused(2, "not a surface", "--surface", "[heap],0x2000-0x1000", "--", "true")
    refused(2, "not a surface", "--surface", "0x1000-0x1800", "--", "true")
    refused(2, "not a surface", "--surface", "[heap],,[stack]", "--", "true")
    refused(2, "takes nothing or json", "--stats=xml", "--", "true")
    refused(2, "surface", "--surface", "", "--", "true")
    refused(2, "no program given")
    refused(2, "no such function", "--at", "func:no_such_symbol_here", "--", "true")
    refused(2, "does not load this object", "--at", "func:libnone.so:puts", "--", "true")
    refused(2, "no such function in the object", "--at", "func:libc.so.6:no_such", "--", "true")
    refused(2, "no code there", "--at", "func:0xfffffff", "--", "true")
    for name in ("atoi/2", "libc.so.6:atoi"):
        refused(2, "at this function already", "--at=func:atoi", f"--at=func:{name}", "--", "true")


def test_programs(folder: Path) -> None:
    setuid, text, script, bits32 = (folder / n for n in ("setuid", "text", "script", "bits32"))
    shutil.copy("/bin/true", setuid)
    setuid.chmod(0o4755)
    text.write_text("nothing to run\n")
    text.chmod(0o755)
    script.write_text("#!/bin/sh\necho from the script $1\nexit 3\n")
    script.chmod(0o755)
    program = bytearray(Path("/bin/true").read_bytes())
    program[4] = 1  # ELFCLASS32
    bits32.write_bytes(program)
    bits32.chmod(0o755)
    refused(127, "No such file", "--", "no-such-program-anywhere")
    refused(127, "No such file", "--", "/no/such/program")
    refused(126, "statically linked", "--", str(VICTIMS / "victim_static"))
    expect(run("--", str(setuid)) == (0, "", ""), "setuid to who runs it anyway")
    if os.geteuid() == 0:
        os.chown(setuid, 65534, 65534)
        setuid.chmod(0o4755)
        refused(126, "setuid", "--", str(setuid))
    refused(126, "not a 64-bit x86 program", "--", str(text))
    refused(126, "not a 64-bit x86 program", "--", str(bits32))
    refused(126, "Permission denied", "--", "/etc/passwd")
    refused(126, "Permission denied", "--", str(folder))
    (folder / "echo").mkdir()
    got = run("--", "echo", "found", PATH=f"{folder}:{os.environ['PATH']}")
    expect(got == (0, "found\n", ""), "a folder of that name is no program", got)
    got = run("--", str(script), "here")
    expect(got == (3, "from the script here\n", ""), "a script runs, its status is its own", got)


def says(words: str, *command: str, cairn: str = CAIRN) -> None:
    """This, executed below a program with sites, is run without the agent, and one line says so."""
    got = run("--at", "wait", "--", *command, cairn=cairn)
    lines = got[2].splitlines()
    right = got[0] == 0 and (len(lines) == 1 and words in lines[0] if words else not lines)
    expect(right, f"{' '.join(command)[-60:]}: '{words or 'nothing'}'", got)


def open_to_all(folder: Path) -> str:
    """The command, with its agent, where every user may read it: the build may be below /root."""
    folder.chmod(0o755)
    for room in ("bin", "lib"):
        (folder / room).mkdir()
    for name in ("bin/cairn", "lib/libcairn-agent.so"):
        shutil.copy(BUILD / name, folder / name)
    return str(folder / "bin" / "cairn")


def test_executed(folder: Path) -> None:
    """Programs that `cairn run` would refuse are not silently bare when they are executed below."""
    static, script = str(VICTIMS / "victim_static"), folder / "script"
    says("", "sh", "-c", "true; /bin/true; exec /bin/true")
    says("", "sh", "-c", f"{script} here || exec /lib64/ld-linux-x86-64.so.2 /bin/true")
    says("", "sh", "-c", "{ no-such-program || /etc/passwd; } 2>/dev/null; :")
    says(f"{static} runs without checkpoints: it is statically linked", "sh", "-c", f"{static}; :")
    says("have gone from its environment", "env", "-i", "/bin/true")
    says("have gone from its environment", "sh", "-c", "LD_PRELOAD= exec /bin/true")
    says("have gone from its environment", "sh", "-c", "unset CAIRN_PLAN; exec /bin/true")
    spawn = "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)"
    says("have gone from its environment", sys.executable, "-c", spawn)
    spawn = "import subprocess; subprocess.run(['/bin/true'], env={})"
    says("have gone from its environment", sys.executable, "-c", spawn)
    if os.geteuid() != 0:
        return
    other = folder / "setuid"  # test_programs has given it to somebody else
    says("setuid or setgid to somebody else", "sh", "-c", f"{other}; :")
    says("", "setpriv", "--no-new-privs", str(other))
    for half in ("os.setresuid(0, 65534, 0)", "os.setresgid(65534, 0, 0)"):
        says("real and its effective user or group differ", sys.executable, "-c",
             f"import os; {half}; os.execv('/bin/true', ['true'])")
    says("", sys.executable, "-c",
         "import os; os.setresuid(65534, 65534, 0); os.execv('/bin/true', ['true'])",
         cairn=open_to_all(folder))


def test_trackers() -> None:
    """A tracker that this host cannot run is refused before the program runs; the others run it."""
    doctor = subprocess.run([CAIRN, "doctor", "--json"], capture_output=True, text=True,
                         timeout=200)
    for tracker in json.loads(doctor.stdout)["trackers"]:
        arguments = ("--tracker", tracker["name"], "--", "echo", "ran")
        if tracker["works"]:
            expect(run(*arguments) == (0, "ran\n", ""), f"{tracker['name']} runs it")
        else:
            refused(126, "see `cairn doctor`", *arguments)
    if os.geteuid() == 0:
        bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534"]
        got = subprocess.run([*bare, CAIRN, "run", "--feed", "bpf", "--", "echo", "ran"], text=True,
                             capture_output=True, timeout=200)
        right = got.returncode == 126 and not got.stdout and "with feed bpf cannot" in got.stderr
        expect(right, "a feed that may not be had is refused", got)
    for feed in (f["name"] for f in json.loads(doctor.stdout)["feeds"] if f["works"]):
        if feed != "scan":
            expect(run("--feed", feed, "--", "echo", "ran") == (0, "ran\n", ""), f"{feed} runs it")


def test_limits() -> None:
    """A limit on the program's files is not one on ours: neither side dies of SIGXFSZ."""
    for command in (["run", "--at", "wait", "--"], ["run", "--at", "output", "--recover", "--"]):
        inner = "import resource, select; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        inner += "select.select([], [], [], 0); print('alive', flush=True); print('still')"
        got = run(*command[1:], sys.executable, "-c", inner)
        expect(got[:2] == (0, "alive\nstill\n"), f"{command} under a limit of its own", got)
    inner = "import io, os, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
    inner += "import ctypes; ctypes.CDLL(None).syscall(425, 1, 0); print('alive')"
    shell = f"exec {CAIRN} run --at wait -- {sys.executable} -c \"{inner}\" 2>"
    with tempfile.NamedTemporaryFile() as lines:
        got = subprocess.run(["sh", "-c", shell + lines.name], stdout=subprocess.PIPE, check=False)
    expect((got.returncode, got.stdout) == (0, b"alive\n"), "a line to a limited file", got)
    reader, writer = os.pipe()
    os.close(reader)
    asks = ["perl", "-e", "syscall(425, 1, 0); print qq(alive\\n)"]
    got = subprocess.run([CAIRN, "run", "--at", "wait", "--", *asks], stdout=subprocess.PIPE,
                         stderr=writer, check=False)
    os.close(writer)
    expect((got.returncode, got.stdout) == (0, b"alive\n"), "a line to a reader that is gone", got)
    shell = f"ulimit -S -f 0; exec {CAIRN} run -- echo limited"
    got = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    expect((got.returncode, got.stdout) == (0, "limited\n"), "cairn run under a limit", got)
    inner = "import os, resource as r, select; r.setrlimit(r.RLIMIT_NOFILE, (9, 9));"
    inner += "[os.dup(0) for _ in range(9 - os.dup(0) - 1)]; select.select([], [], [], 0)"
    got = run("--at", "wait", "--", sys.executable, "-c", inner)
    right = got[0] == 0 and "no descriptors left; RLIMIT_NOFILE (ulimit" in got[2]
    expect(right, "without descriptors it is not said that /proc is missing", got)
    for limit, value in (("NOFILE", 4), ("DATA", 4 << 20)):
        inner = "import resource as r, select;"
        inner += f"r.setrlimit(r.RLIMIT_{limit}, ({value}, {value}));"
        inner += "select.select([], [], [], 0); print('alive')"
        got = run("--at", "wait", "--", sys.executable, "-c", inner)
        right = got[:2] == (0, "alive\n") and f"RLIMIT_{limit} (ulimit" in got[2]
        expect(right, f"it runs on without checkpoints, and is told of RLIMIT_{limit}", got)
    inner = "import os, resource as r, select\nif os.fork():\n os.wait(); "
    inner += "select.select([], [], [], 0); print('alive')\n"
    inner += "else:\n r.prlimit(os.getppid(), r.RLIMIT_AS, (%s, %s)); os._exit(0)"
    for value, line in ((1 << 20, "no checkpoints"), (1 << 32, "the engine takes")):
        outside = inner % (value, value)
        command = [CAIRN, "run", "--at", "wait", "--", sys.executable, "-c", outside]
        if os.geteuid() == 0:
            command = ["setpriv", "--bounding-set=-sys_resource", *command]
        got = subprocess.run(command, capture_output=True, text=True, check=False)
        right = (got.returncode, got.stdout) == (0, "alive\n") and line in got.stderr
        expect(right and "RLIMIT_AS" in got.stderr, "a limit on address space that stays", got)
    inner = "import resource as r, select; r.setrlimit(r.RLIMIT_DATA, (1 << 30, 1 << 30));"
    inner += "e = select.epoll(); [e.poll(0.001) for _ in range(5)]; print('alive')"
    got = run("--at", "wait", "--tracker", "mprotect", "--", sys.executable, "-c", inner)
    expect(got == (0, "alive\n", ""), "a limit that leaves room, and a buffer of a call", got)


def test_inetd() -> None:
    """Standard error is the peer: it gets what the program sends, and the end when that closes."""
    here, there = socket.socketpair()
    asks = "syscall(425, 1, 0); syswrite(STDOUT, qq(mine)); close($_) for *STDIN, *STDOUT, *STDERR;"
    child = subprocess.Popen([CAIRN, "run", "--at", "wait", "--", "perl", "-e", asks + "sleep 200"],
                             stdin=there, stdout=there, stderr=there)
    there.close()
    here.settimeout(100)
    said = b""
    try:
        while piece := here.recv(1000):
            said += piece
    except TimeoutError:
        said += b" and no end"
    child.kill()
    child.wait()
    expect(said == b"mine", "nothing of ours is sent to the peer", said)


def test_root(folder: Path) -> None:
    """
    A program that changes its root takes checkpoints and recovers without a /proc there, and so do
    its children; who may not mount is told what it lacks.
    """
    root = folder / "root"
    root.mkdir()
    status = Path("/proc/self/status").read_text()
    mounts = int(status.partition("CapEff:")[2].split()[0], 16) >> 21 & 1  # CAP_SYS_ADMIN
    if not mounts:
        print("skip: CAP_SYS_ADMIN, to keep a /proc", flush=True)
    inner = "import ctypes, mmap, os, select, sys\n"
    inner += "passes = mmap.mmap(-1, 4096)\n"
    inner += "try: os.chroot(sys.argv[1])\n"
    inner += "except PermissionError: print('forbidden'); sys.exit()\n"
    inner += "os.chdir('/'); [select.select([], [], [], 0) for _ in range(3)]\n"
    inner += "if os.fork(): sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    inner += "[select.select([], [], [], 0) for _ in range(3)]; passes[0] += 1\n"
    inner += "if passes[0] == 1 and sys.argv[2] == 'crash': ctypes.string_at(0)\n"
    inner += "print('alive', flush=True)"
    for tracker in ("async", "mprotect", "uffd", "fork"):
        options = ["--at", "wait", "--tracker", tracker]
        recover = ("--recover",) if mounts and tracker != "fork" else ()
        got = run(*options, *recover, "--stats", "--", sys.executable, "-c", inner, str(root),
                  "crash" if recover else "")
        if got[1] == "forbidden\n":
            print("skip: chroot is not permitted", flush=True)
            return
        right = got[:2] == (0, "alive\n") and got[2].count(" 0 failed\n") == 2 * mounts
        right &= got[2].count("recovered (1): SIGSEGV") == len(recover)
        expect(right, f"a root without /proc under {tracker}", got)
        less = ["setpriv", "--bounding-set", "-sys_admin", CAIRN, "run", *options, "--",
                sys.executable, "-c", inner, str(root), ""]
        done = subprocess.run(less, capture_output=True, text=True, check=False)
        right = (done.returncode, done.stdout) == (0, "alive\n")
        right &= done.stderr.count("\n") == done.stderr.count("/proc cannot") == 2
        expect(right, f"no /proc, and no right to mount it, under {tracker}", done)
        late = inner.replace("try:", "select.select([], [], [], 0)\ntry:").replace(
            "if os.fork(): sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n", "")
        less = [*less[:less.index("--")], *(["--recover"] if tracker != "fork" else []), "--",
                sys.executable, "-c", late, str(root), ""]
        done = subprocess.run(less, capture_output=True, text=True, check=False)
        right = (done.returncode, done.stdout) == (0, "alive\n")
        right &= done.stderr.count("\n") == done.stderr.count("without /proc: no checkpoints") == 1
        expect(right, f"it is said when sites have been passed before, under {tracker}", done)


def test_children() -> None:
    """Whoever is executed below has the agent too, also behind a shell that closes descriptors."""
    script = "exec 2>&1; /bin/true; env true; sh -c 'exec true'"
    got = run("--", "bash", "-c", script, CAIRN_DEBUG="1")
    lines = [line for line in (got[1] + got[2]).splitlines() if "sites patched" in line]
    expect(len(lines) >= 5, f"{len(lines)} programs with the agent", got)
    many = all(int(line.split()[2]) > 400 for line in lines)
    expect(many, "each with more than 400 patches", lines)
    got = run("--", "env", "-i", "/bin/echo", "bare")
    expect(got == (0, "bare\n", ""), "a program without our environment runs bare", got)


def test_a_long_scan_is_told() -> None:
    """Who scans much memory at each checkpoint learns of a tracker that scans none; nobody else."""
    for size in (1, 80):
        inner = (f"import os, select; b = bytearray({size} << 20); "
                 "[select.select([], [], [], 0) for _ in range(3)]; os._exit(0)")
        got = run("--at", "wait", "--tracker", "async", "--feed", "scan", "--stats", "--",
                  sys.executable, "-c", inner)
        if got[0] == 2:
            print("skip: tracker async", flush=True)
            return
        told = "--tracker uffd" in got[2]
        right = got[0] == 0 and "feed scan" in got[2] and told == (size > 64)
        expect(right, f"a scan of {size} MiB", got)


def test_functions() -> None:
    """A site in a shared object, named in all the ways there are, is hit at each call."""
    inner = "import ctypes; c = ctypes.CDLL(None); print(sum(c.atoi(b'6') for _ in range(7)))"
    for name in ("func:libc.so.6:atoi", "func:libc.so:atoi", "func:atoi"):
        got = run("--at", name, "--stats=json", "--", sys.executable, "-c", inner)
        hits = [json.loads(line)["hits"] for line in got[2].splitlines() if line[0] == "{"]
        expect(got[:2] == (0, "42\n") and hits == [7], f"{name} is hit 7 times", got)
    for name, hits in (("far_function", 7), ("far_falling", 7), ("far_entered", 14)):
        at = f"func:libvictim_far_object.so:{name}"
        got = run("--at", at, "--stats=json", "--", str(VICTIMS / "victim_far"))
        expect(got[0] == 0 and f'"hits": {hits},' in got[2], f"{name}, far and short", got)
    sites = [f"--at=func:libvictim_far_object.so:far_{n}"
             for n in ("neighbour", "function", "entered", "falling")]
    got = run(*sites, "--stats=json", "--", str(VICTIMS / "victim_far"))
    expect(got[0] == 0 and '"hits": 35,' in got[2], "sites in each other's bytes", got)
    refused(2, "no such function in the object", "--at", "func:libc.so.6:memcpy", "--", "true")
    code = ("import ctypes; c = ctypes.CDLL(None); b = ctypes.create_string_buffer(99)\n"
            "[c.pthread_cond_signal(b) for _ in range(7)]")
    got = run("--at", "func:libc.so.6:pthread_cond_signal/100", "--stats=json", "--",
              sys.executable, "-c", code)
    hits = [json.loads(line)["hits"] for line in got[2].splitlines() if line[0] == "{"]
    expect(got[0] == 0 and hits and hits[0] >= 7, "a function of two versions is the newer", got)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(VICTIMS / "libvictim_far_object.so", f"{folder}/libreal.so.9")
        os.symlink("libreal.so.9", f"{folder}/libvictim_far_object.so")
        for name in ("libreal.so.9", "libvictim_far_object.so"):
            got = run("--at", f"func:{name}:far_function", "--stats=json", "--",
                      str(VICTIMS / "victim_far"), LD_LIBRARY_PATH=folder)
            expect(got[0] == 0 and '"hits": 7,' in got[2], f"{name}, a link and its file", got)
    got = run("--at", "func:libc.so.6:getpid", "--", "true")
    expect(got[0] == 0 and "intercepted already" in got[2], "the entry of a system call", got)


CROWD = """
import ctypes, threading
poll = ctypes.CDLL(None).poll
poll(None, 0, 0)
crowd = [threading.Thread(target=lambda: [poll(None, 0, 0) for _ in range(100)]) for _ in range(4)]
[t.start() for t in crowd]
[t.join() for t in crowd]
"""


def test_nested() -> None:
    """A site that a thread passes while another takes a checkpoint is skipped, and counted."""
    skipped = 0
    for _ in range(20):
        got = run("--at", "wait", "--tracker", "fork", "--stats=json", "--", sys.executable, "-c",
                  CROWD)
        lines = [json.loads(line) for line in got[2].splitlines() if line.startswith('{"pid"')]
        right = got[0] == 0 and len(lines) == 1 and lines[0]["hits"] + lines[0]["nested"] == 401
        if not right or (skipped := lines[0]["nested"]):
            break
    expect(right and skipped > 0, "each of 401 hits is counted, some as nested", got)


SHORT = """
import ctypes, mmap, select, sys
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE)
select.select([], [], [], 0)
for part, value in ((1, 1), (64, 2), (64, 3), (1, 4)):
    for at in range(0, part << 20, 4096):
        memory[at] = value
    if sys.argv[1] == "crash" and value == 2:
        ctypes.string_at(8)
    select.select([], [], [], 0)
print("went on", memory[0], memory[-4096])
"""


def test_memory_limit() -> None:
    """The program goes on, and one line says what has failed; so does a refused recovery."""
    for tracker in ("async", "mprotect", "uffd"):
        options = ("--at=wait", f"--tracker={tracker}", "--strategy=none", "--memory-max=24M")
        got = run(*options, "--", sys.executable, "-c", SHORT, "on")
        right = got[:2] == (0, "went on 4 3\n") and got[2].count("--memory-max") == 1
        expect(right and "is marked failed: EMEMORY" in got[2], f"a limit under {tracker}", got)
        if tracker == "async":  # its copies are made at the checkpoint
            continue
        got = run(*options, "--recover", "--", sys.executable, "-c", SHORT, "crash")
        right = got[0] == -11 and "recovery refused" in got[2] and "EMEMORY" in got[2]
        expect(right, f"nothing to go back to under {tracker}", got)


GROWN = """
import os, select, subprocess, sys
select.select([], [], [], 0)
memory = os.urandom(40 << 20)
for _ in range(5):
    select.select([], [], [], 0)
print(subprocess.run([*sys.argv[1:], str(os.getpid())], stdout=subprocess.PIPE).stdout.decode())
"""


def test_stat_of_failures() -> None:
    """`cairn stat` counts checkpoints that fail while they do."""
    options = ("--at=wait", "--tracker=async", "--strategy=none", "--memory-max=24M")
    stat = (CAIRN, "stat", "--json")
    got = run(*options, "--", sys.executable, "-c", GROWN, *stat)
    figures = json.loads(got[1] or "{}")
    expect(figures.get("failed", 0) >= 5 and figures["hits"] > 5, "stat of a run that fails", got)


LAST_WORDS = """
import ctypes, os, select, signal, sys
select.select([], [], [], 0)
how = sys.argv[1]
if how == "abort":
    os.abort()
elif how == "crash":
    ctypes.string_at(8)
elif how == "exit":
    os._exit(3)
elif how == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(4)
how == "9" or signal.signal(int(how), signal.SIG_DFL)
os.kill(os.getpid(), int(how))
"""


def test_summary() -> None:
    """--stats speaks up once however the program ends, as long as code of ours still runs."""
    for how, status in (("abort", -6), ("crash", -11), ("15", -15), ("13", -13), ("34", -34),
                        ("exit", 3), ("ignored", 4)):
        for tracker in ("async", "mprotect"):
            got = run("--at", "wait", "--stats=json", "--tracker", tracker, "--", sys.executable,
                      "-c", LAST_WORDS, how)
            lines = [line for line in got[2].splitlines() if line.startswith('{"pid"')]
            right = got[0] == status and len(lines) == 1 and json.loads(lines[0])["checkpoints"] > 0
            expect(right, f"{how} under {tracker}: status {status} and a summary", got)
    got = run("--at", "output", "--stats=json", "--", "sh", "-c", "echo 1; echo 2; echo 3")
    figures = json.loads(got[2].splitlines()[-1])
    right = figures["outputs"] == figures["checkpoints"] > 0
    expect(right, "checkpoints at --at output are after outputs", got)
    got = run("--at", "wait", "--stats=json", "--", sys.executable, "-c", LAST_WORDS, "9")
    expect(got[0] == -9 and not got[2], "SIGKILL leaves no time for a summary", got)


GUARD = """
import ctypes, mmap, time
libc = ctypes.CDLL(None, use_errno=True)
pages = mmap.mmap(-1, 8192)
pages[:] = bytes(8192)
where = ctypes.addressof(ctypes.c_char.from_buffer(pages))
answer = libc.madvise(ctypes.c_void_p(where), 4096, 102)
select = __import__("select")
for _ in range(3):
    pages[4096] += 1
    select.select([], [], [], 0.001)
print(answer, ctypes.get_errno(), pages[4096])
"""


DROPPED = """
import ctypes, mmap, select
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_ssize_t
passes = mmap.mmap(-1, 4096)
print(libc.mmap(None, 8192, 3, 0x28, -1, 0), ctypes.get_errno(), flush=True)
select.select([], [], [], 0)
passes[0] += 1
if passes[0] == 1:
    ctypes.memset(0, 1, 1)
print("on")
"""


def test_droppable() -> None:
    """Memory that the kernel may drop is refused: where it was, nothing could be brought back."""
    got = run("--at", "wait", "--recover", "--", sys.executable, "-c", DROPPED)
    right = got[:2] == (0, "-1 22\non\n") and "recovered (1)" in got[2]
    expect(right, "memory that may be dropped is not mapped", got)


def test_guard_pages() -> None:
    """Guard pages and seals are answered as by a kernel that lacks them."""
    got = run("--at", "wait", "--", "python3", "-c", GUARD)
    expect(got[:2] == (0, "-1 22 3\n"), "guard pages are not installed", got)
    seal = GUARD.replace("libc.madvise(", "libc.syscall(462, ").replace("4096, 102)", "8192, 0)")
    for tracker in ("uffd", "mprotect"):  # what these close must be opened again
        got = run("--at", "wait", "--tracker", tracker, "--", "python3", "-c", seal)
        expect(got[:2] == (0, "-1 38 3\n"), f"memory is not sealed under {tracker}", got)


LOOPS = """
import mmap, select
for _ in range(5):
    mmap.mmap(-1, 8192)
    select.select([], [], [], 0.001)
"""


def test_surface_list() -> None:
    """Memory that a list names stays tracked while a tracker has made it read-only."""
    for tracker in ("async", "mprotect"):
        got = run("--at", "wait", "--surface", "[heap],libc.so.6", "--tracker", tracker, "--",
                  sys.executable, "-c", LOOPS, CAIRN_LOG="debug")
        right = got[0] == 0 and "session open" in got[2] and " gone " not in got[2]
        expect(right, f"nothing of a list is lost under {tracker}", got)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="cairn-test-"))
    try:
        test_command_line()
        test_programs(folder)
        test_executed(folder)
        test_trackers()
        test_limits()
        test_inetd()
        test_root(folder)
        test_children()
        test_droppable()
        test_guard_pages()
        test_surface_list()
        test_summary()
        test_a_long_scan_is_told()
        test_functions()
        test_nested()
        test_memory_limit()
        test_stat_of_failures()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failures else 0)


main()
