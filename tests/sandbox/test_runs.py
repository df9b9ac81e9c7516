"""What a run is to an honest program: an ordinary Python process with pipes, on every backend."""

from __future__ import annotations

import os
import sys
import textwrap
import threading

import pytest

from tossup.sandbox import Limits, Outcome, Sandbox
from tossup.sandbox.program import Program

PROGRAMS: dict[str, tuple[str, bytes, bytes]] = {
    "input and print": ("a, b = map(int, input().split())\nprint(a + b)", b"2 3\n", b"5\n"),
    "sys.stdin": ("import sys\nprint(sum(int(x) for x in sys.stdin))", b"1\n2\n3\n", b"6\n"),
    "sys.stdin.buffer": ("import sys\nprint(len(sys.stdin.buffer.read()))", b"\xff" * 100_000, b"100000\n"),
    "the streams' attributes": (
        "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr):\n"
        "    print(s.name, s.mode, s.buffer.name, s.buffer.raw.mode, s.fileno(), s.encoding, s.isatty(), end=' ')\n"
        "    print(s is vars(sys)[f'__{s.name[1:-1]}__'])",
        b"",
        b"<stdin> r <stdin> rb 0 utf-8 False True\n<stdout> w <stdout> wb 1 utf-8 False True\n"
        b"<stderr> w <stderr> wb 2 utf-8 False True\n",
    ),
    "open(0)": ("print(open(0).read().split())", b"x y", b"['x', 'y']\n"),
    "os.read and os.write": ("import os\nos.write(1, os.read(0, 100))", b"raw", b"raw"),
    "end of input": ("try:\n    input()\nexcept EOFError:\n    print('end')", b"", b"end\n"),
    "globals and recursion": ("n = 3\ndef f(k): return k and n + f(k - 1)\nprint(f(100))", b"", b"300\n"),
    "a main guard": ("def main(): print(__name__, __file__)\nif __name__ == '__main__': main()", b"", b"__main__ main.py\n"),
    "pickling its own class": (
        "import pickle\nclass A: x = 1\nprint(pickle.loads(pickle.dumps(A())).x)", b"", b"1\n",
    ),
    "dataclasses and typing": (
        "from dataclasses import dataclass\nfrom typing import List, get_type_hints\n@dataclass\nclass A:\n    x: List[int]\n"
        "print(A([1]), get_type_hints(A))", b"", b"A(x=[1]) {'x': typing.List[int]}\n",
    ),
    "threads": (
        "import threading\nt = [threading.Thread(target=print, args=(i,)) for i in range(3)]\n"
        "for x in t: x.start(); x.join()", b"", b"0\n1\n2\n",
    ),
    "a thread that outlives main": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()", b"", b"late\n",
    ),
    "a thread pool": (
        "from concurrent.futures import ThreadPoolExecutor as T\nprint(list(T(4).map(abs, [-1, -2])))", b"", b"[1, 2]\n",
    ),
    "asyncio": ("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    print('as')\nasyncio.run(f())", b"", b"as\n"),
    "exit handlers": ("import atexit\natexit.register(print, 'bye')\nprint('hi')", b"", b"hi\nbye\n"),
    "exit() as contest programs end": ("print(1)\nexit()\nprint(2)", b"", b"1\n"),
    "quit(0)": ("print(callable(help))\nquit(0)", b"", b"True\n"),
    "sys.exit in the middle": ("import sys\nprint(1)\nsys.exit()\nprint(2)", b"", b"1\n"),
    "an alarm": (
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *a: print('ring'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.1)", b"", b"ring\n",
    ),
    "a bigger stack": (
        "import resource, sys, threading\nresource.setrlimit(resource.RLIMIT_STACK, (-1, -1))\nsys.setrecursionlimit(10**6)\n"
        "threading.stack_size(1 << 26)\ndef f(n): return n and 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(50000)))\nt.start(); t.join()", b"", b"50000\n",
    ),
    "unicode": ("print(input()[::-1])", "äß∂".encode(), "∂ßä\n".encode()),
    "a coding cookie": ("# -*- coding: utf-8 -*-\nprint('é')", b"", "é\n".encode()),
    "no future inherited": ("def f(x: print('now')): pass", b"", b"now\n"),
    "sets in a fixed order": ("print(hash('a') == hash('a'), {'b', 'a', 'c'} == set('abc'))", b"", b"True True\n"),
    "the C library": ("import ctypes\nprint(ctypes.CDLL(None).abs(-3))", b"", b"3\n"),
    "imports that nobody preloaded": ("import difflib, graphlib, sched\nprint(difflib.__name__)", b"", b"difflib\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_a_program(sandbox: Sandbox, name: str) -> None:
    program, stdin, stdout = PROGRAMS[name]
    result = sandbox.run(program, stdin)
    assert (result.outcome, result.stdout, result.stderr, result.exit_code) == (Outcome.FINISHED, stdout, b"", 0), (
        result
    )
    assert result.reason == ""
    assert 0 < result.cpu_seconds < 5
    assert result.peak_bytes > 1 << 20


ENDS: dict[str, tuple[str, Outcome, int, str]] = {
    "a status": ("import sys; sys.exit(3)", Outcome.ERROR, 3, "exit status 3"),
    "a message": ("import sys; sys.exit('no')", Outcome.ERROR, 1, "exit status 1: no"),
    "os._exit": ("import os; os._exit(0)", Outcome.FINISHED, 0, ""),
    "an exception": ("1 / 0", Outcome.ERROR, 1, "exit status 1: ZeroDivisionError: division by zero"),
    "a syntax error": ("def", Outcome.ERROR, 1, "exit status 1: SyntaxError: invalid syntax"),
    "a null byte": ("x = 1\0", Outcome.ERROR, 1, "exit status 1: "),
    "a surrogate": ("print('\ud800')", Outcome.ERROR, 1, "exit status 1: "),
    "a crash": ("import ctypes; ctypes.string_at(0)", Outcome.ERROR, -11, "killed by signal 11 (Segmentation fault)"),
    "no memory": ("x = bytearray(1 << 33)", Outcome.MEMORY, 1, "memory limit 256 MiB: MemoryError"),
    "a forbidden call": ("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)", Outcome.POLICY, -31,
                         "killed for a forbidden system call"),
    "fork": ("import os; os.fork()", Outcome.ERROR, 1, "exit status 1: PermissionError: [Errno 1] Operation not permitted"),
    "a busy loop": ("while True: pass", Outcome.TIMEOUT_CPU, -9, "CPU limit 1 s"),
    "a busy loop in threads": (
        "import threading\ndef f():\n    while True: pass\nfor _ in range(4): threading.Thread(target=f).start()",
        Outcome.TIMEOUT_CPU, -9, "CPU limit 1 s"),
    "a long line": ("print('x' * 2_000_000)\nwhile True: pass", Outcome.OUTPUT, -9, "more than 1048576 bytes of output"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_name(sandbox: Sandbox, name: str) -> None:
    program, outcome, code, reason = ENDS[name]
    result = sandbox.run(program)
    assert (result.outcome, result.exit_code) == (outcome, code), result
    assert result.reason.startswith(reason)


def test_a_sleeper_ends_by_wall_time(sandbox: Sandbox) -> None:
    result = sandbox.run("import time; time.sleep(600)", limits=Limits(cpu_seconds=1, wall_seconds=0.3))
    assert result.outcome is Outcome.TIMEOUT_WALL
    assert result.cpu_seconds < 0.3
    assert "wall limit 0.3 s" in result.reason


def test_files_of_its_own(sandbox: Sandbox) -> None:
    """An interpreter that is installed under /tmp takes that name; the working directory is the run's own all the same."""
    folder = "." if sys.prefix.startswith("/tmp/") else "/tmp"
    program = (
        f"folder = {folder!r}"
        + """
import os, tempfile
with open(folder + '/x', 'w') as f: f.write('a')
with open('y', 'x') as f: f.write('b')
os.mkdir('d'); os.rename('y', 'd/z'); os.symlink('d/z', 'l')
with tempfile.NamedTemporaryFile('w+', dir=folder) as f: f.write('c'); f.seek(0); print(f.read())
print(open('x').read(), open(folder + '/l').read(), sorted(os.listdir()), os.stat('x').st_size)
os.unlink('x'); os.unlink('l'); os.unlink('d/z'); os.rmdir('d')
"""
    )
    result = sandbox.run(program)
    if sandbox.backend == "namespaces":
        assert result.stdout == b"c\na b ['d', 'l', 'x'] 1\n", result
    else:  # the others have no directory to write in
        assert (result.outcome, result.stdout) == (Outcome.ERROR, b"")


def test_files_are_limited_and_gone_with_their_run(strongest: Sandbox) -> None:
    if strongest.backend != "namespaces":
        pytest.skip("only namespaces give a run a directory of its own")
    fill = "import os\nf = open('x', 'wb')\nfor _ in range(n): f.write(bytes(1 << 20)); f.flush()\nprint(os.listdir())"
    small = Limits(file_bytes=2 << 20)
    assert strongest.run("n = 1\n" + fill, limits=small).stdout == b"['x']\n"
    assert strongest.run("n = 3\n" + fill, limits=small).outcome is Outcome.ERROR
    assert strongest.run("n = 3\n" + fill).stdout == b"['x']\n"
    strongest.run("import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')")
    for _ in range(4):
        assert strongest.run("import os\nprint(os.listdir(), os.getcwd())").stdout == b"[] /box/tmp\n"


def test_devices(sandbox: Sandbox) -> None:
    result = sandbox.run("open('/dev/null', 'w').write('x')\nprint(len(open('/dev/urandom', 'rb').read(4)))")
    assert result.stdout == (b"" if sandbox.backend == "chroot" else b"4\n")


def test_output_and_errors_beyond_what_a_pipe_holds(sandbox: Sandbox) -> None:
    result = sandbox.run("import sys\nfor i in range(9000): print('x' * 99); print('y' * 99, file=sys.stderr)")
    assert result.outcome is Outcome.FINISHED
    assert result.stdout == (b"x" * 99 + b"\n") * 9000
    assert len(result.stderr) == 16 << 10
    assert result.stderr.endswith(b"y" * 99 + b"\n")


def test_output_past_the_limit_is_cut_and_the_next_run_is_not_disturbed(sandbox: Sandbox) -> None:
    for _ in range(5):
        result = sandbox.run("import os\nos.write(1, b'x' * 3000)", limits=Limits(output_bytes=1000))
        assert (result.outcome, result.stdout) == (Outcome.OUTPUT, b"x" * 1000)
        assert sandbox.run("import time; time.sleep(0.01); print('fine')").stdout == b"fine\n"


def test_arguments_and_environment(sandbox: Sandbox) -> None:
    result = sandbox.run("import sys, os\nprint(sys.argv, sorted(os.environ)[:2])", argv=("a", "b c"))
    assert result.stdout == b"['main.py', 'a', 'b c'] ['HOME', 'LANG']\n"


def test_runs_repeat_themselves(sandbox: Sandbox) -> None:
    program = "import random\nprint(random.random(), hash('x'), {'b', 'a', 'c'})"
    assert len({sandbox.run(program).stdout for _ in range(3)}) == 1


def test_a_run_leaves_nothing_to_the_next(sandbox: Sandbox) -> None:
    sandbox.run(
        "import builtins, math, sys\nbuiltins.print = None\nmath.pi = 3\nsys.modules['json'] = None\nopen('/tmp/of-a-run', 'w')"
    )
    result = sandbox.run("import json, math, os\nprint(math.pi > 3, json.dumps(1), os.path.exists('/tmp/of-a-run'))")
    assert result.stdout == b"True 1 False\n"


def test_run_many_compiles_once_and_stops_when_told(sandbox: Sandbox) -> None:
    stdins = [str(n).encode() for n in range(10)]
    results = sandbox.run_many("print(int(input()) ** 2)", stdins, go_on=lambda i, r: r.stdout != b"9\n")
    assert [r.stdout for r in results] == [b"0\n", b"1\n", b"4\n", b"9\n"]
    broken = sandbox.run_many("def", stdins[:2])
    assert [r.outcome for r in broken] == [Outcome.ERROR] * 2
    mixed = sandbox.run_many("x = input()\nif x == '0':\n    while True: pass\nprint(x)", stdins[:2])
    assert [r.outcome for r in mixed] == [Outcome.TIMEOUT_CPU, Outcome.FINISHED]


def test_two_programs_talk(sandbox: Sandbox) -> None:
    candidate = "import os\nwhile data := os.read(3, 100): os.write(4, data.upper())"
    tests = "import os\nos.write(4, b'abc')\nos.write(5, b'got ' + os.read(3, 100))\nprint(input())"
    talk = sandbox.converse(candidate, tests, tests_stdin=b"hello\n")
    assert talk.verdict == b"got ABC"
    assert (talk.tests.outcome, talk.tests.stdout) == (Outcome.FINISHED, b"hello\n")
    assert talk.candidate.outcome is not Outcome.INFRA


def test_a_candidate_that_ends_leaves_the_tests_end_of_file(sandbox: Sandbox) -> None:
    tests = "import os\nos.write(5, repr(os.read(3, 100)).encode())"
    for candidate in (
        "pass",
        "1 / 0",
        "import os; os._exit(0)",
        "import os; os.close(3); os.close(4)",
        "while True: pass",
    ):
        talk = sandbox.converse(candidate, tests)
        assert (talk.verdict, talk.tests.outcome) == (b"b''", Outcome.FINISHED), candidate


def test_tests_that_end_take_the_candidate_along(sandbox: Sandbox) -> None:
    talk = sandbox.converse("import time; time.sleep(600)", "import os; os.write(5, b'done')")
    assert talk.verdict == b"done"
    assert talk.candidate.wall_seconds < 10
    assert talk.candidate.reason == "stopped when the tests had ended"


def test_a_candidate_has_no_verdict_pipe_and_its_noise_is_dropped(sandbox: Sandbox) -> None:
    candidate = """
import os
for fd in range(5, 4096):
    try: os.write(fd, b'forged')
    except OSError: pass
os.write(1, b'x' * 3_000_000)
os.write(4, b'y')
"""
    tests = "import os\nos.read(3, 1)\nos.write(5, b'true')\nos.read(3, 1)"
    talk = sandbox.converse(candidate, tests)
    assert talk.verdict == b"true"
    assert talk.candidate.outcome in (Outcome.FINISHED, Outcome.ERROR)  # ended, or stopped while it was ending
    assert len(talk.candidate.stdout) == 1 << 20


def test_neither_side_can_hold_up_the_other_for_ever(sandbox: Sandbox) -> None:
    flood = "import os\nwhile True: os.write(4, b'x' * 65536)"
    talk = sandbox.converse(flood, "import os\nos.read(3, 10)\nos.write(5, b'enough')")
    assert (talk.verdict, talk.tests.outcome) == (b"enough", Outcome.FINISHED)
    limits = Limits(cpu_seconds=1, wall_seconds=0.5)
    both_wait = "import os\nos.read(3, 1)"
    talk = sandbox.converse(both_wait, both_wait, candidate_limits=limits, tests_limits=limits)
    assert Outcome.TIMEOUT_WALL in (talk.candidate.outcome, talk.tests.outcome)
    assert Outcome.INFRA not in (talk.candidate.outcome, talk.tests.outcome)
    assert talk.verdict == b""
    noisy = "import os\nfor _ in range(100): os.write(5, b'y' * 4096)"
    assert len(sandbox.converse("pass", noisy).verdict) == 64 << 10


def test_preloads_and_modules(tmp_path, strongest: Sandbox) -> None:  # type: ignore[no-untyped-def]
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("def twice(x): return 2 * x")
    second.write_text("from pkg.first import twice\nnumber = twice(21)")
    with Sandbox(
        strongest.backend, workers=1, preload=("numpy",), modules={"pkg.first": str(first), "second": str(second)}
    ) as box:
        result = box.run(
            "import second, numpy, sys\nprint(second.number, numpy.arange(3).sum(), 'numpy' in sys.modules)"
        )
    assert result.stdout == b"42 3 True\n"


def test_installed_packages_can_be_imported_without_preload(strongest: Sandbox) -> None:
    assert strongest.run("import numpy\nprint(numpy.ones(3).sum())").stdout == b"3.0\n"


def test_many_threads_share_a_sandbox(strongest: Sandbox) -> None:
    wrong: list[object] = []

    def work(n: int) -> None:
        for i in range(10):
            result = strongest.run("print(int(input()) + 1)", f"{n * 100 + i}".encode())
            if result.stdout != f"{n * 100 + i + 1}\n".encode():
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="cpu_seconds"):
        Limits(cpu_seconds=0)
    with pytest.raises(ValueError, match="wall_seconds"):
        Limits(wall_seconds=-1)
    assert Limits(cpu_seconds=2).wall == 20
    assert sys.version_info >= (3, 11)


def test_a_program_that_is_kept_is_compiled_once_unless_that_run_is_killed(sandbox: Sandbox) -> None:
    text = (
        "import sys\nif input() == 'hang':\n    while True: pass\nprint(sys._getframe().f_code.co_filename, sys.argv)"
    )
    with Program(text, many=True) as program:
        for word in ("hang", "a", "b", "c"):
            result = sandbox.run(program, word.encode(), argv=[word], limits=Limits(cpu_seconds=0.3, wall_seconds=60))
            with program.handed_to(word) as (_, fd):
                assert fd is not None
                compiled = os.fstat(fd).st_size
            program.was_run(word, True)
            if word == "hang":
                assert result.outcome is Outcome.TIMEOUT_CPU
                assert compiled == 0
            else:
                assert result.stdout == f"main.py ['main.py', '{word}']\n".encode()
                assert compiled > 100
        program.close()
        for name, given in (("first", True), ("at the same time", False), ("still", False)):
            with program.handed_to(name) as (_, fd):
                assert (fd is not None) == given
        program.was_run("at the same time", True)
        program.was_run("first", False)
        assert sandbox.run(program, b"d", argv=["d"]).outcome is Outcome.FINISHED


def test_a_program_may_signal_itself(sandbox: Sandbox) -> None:
    program = """
        import os, signal
        signal.signal(signal.SIGUSR1, lambda number, frame: print("got", number))
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
    """
    for _ in range(2):  # its id differs from run to run, and the filter must know the right one
        assert sandbox.run(textwrap.dedent(program)).stdout == b"got 10\n" * 3


def test_what_the_zygote_rehearsed_leaves_no_trace(sandbox: Sandbox) -> None:
    program = """
        import atexit, gc, os, random, sys
        print(sorted(k for k in globals() if not k.startswith("__")), sys.argv, gc.isenabled(), random.random())
        print(sorted(os.environ), sys.stdin.read())
        atexit.register(print, "end")
    """
    first = sandbox.run(textwrap.dedent(program), b"text", argv=["a"]).stdout.decode()
    assert first.startswith("['atexit', 'gc', 'os', 'random', 'sys'] ['main.py', 'a'] True 0.8444218515250481\n")
    assert "LD_" not in first
    assert first.endswith(" text\nend\n")
    assert "'a'" not in sandbox.run("import sys; print(sys.argv)").stdout.decode()


def test_a_compiled_form_that_does_not_fit_is_not_kept(sandbox: Sandbox) -> None:
    """What is too big for the limit on files was cut off there, and every later run of a correct program failed."""
    assert [r.stdout for r in sandbox.run_many("print(1)", [b""] * 3, limits=Limits(file_bytes=9))] == [b"1\n"] * 3


def test_a_program_is_not_closed_while_it_is_handed_over() -> None:
    """A descriptor that is closed then may be another file by the time it is sent."""
    program = Program("print(1)", many=True)
    closing = threading.Thread(target=program.close)
    with program.handed_to("a run") as (source, code):
        closing.start()
        closing.join(0.2)
        assert closing.is_alive()
        assert code is not None
        assert os.fstat(source).st_size == len("print(1)")
    closing.join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(source)


def test_a_fork_of_the_host_shares_no_program_with_it(strongest: Sandbox) -> None:
    """The parent's thread would never release the lock in the child, and two hosts would write to one compiled form."""
    with Program("print(1)", many=True) as program:
        assert strongest.run(program).stdout == b"1\n"
        with program.handed_to("a run") as (_, code):
            assert code is not None
            of_the_parent = os.fstat(code).st_ino
            child = os.fork()
            if child == 0:
                with program.handed_to("another") as (_, own):
                    os._exit(own is None or os.fstat(own).st_ino == of_the_parent)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert strongest.run(program).stdout == b"1\n"


def test_files_made_and_removed_tell_the_next_run_nothing(sandbox: Sandbox) -> None:
    """The number of a new file counts those before it, and the date of a directory when they came and went."""
    leave = """
        import os
        for i in range(int(input())):
            try:
                open("/tmp/of-a-run", "w").close()
                os.unlink("/tmp/of-a-run")
            except OSError:
                pass
    """
    look = """
        import os
        try:
            about = os.stat("/tmp")
            open("/tmp/of-a-look", "w").close()
            print(about.st_mtime, about.st_atime, os.stat("/tmp/of-a-look").st_ino)
        except OSError:
            print("nothing can be written")
    """
    seen = set()
    for count in (b"0", b"1", b"9", b"0"):
        sandbox.run(textwrap.dedent(leave), count)
        seen.add(sandbox.run(textwrap.dedent(look)).stdout)
    assert len(seen) == 1, seen
    written = sandbox.backend == "namespaces" and not sys.prefix.startswith("/tmp/")
    assert (b"nothing" not in seen.pop()) == written
