"""When the sandbox itself fails: retried once on a fresh worker, then `infra`, never a verdict and never a weaker backend."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import skip_unless_offered
from tests.sandbox.processes import children, gone, processes, until
from tossup.records import TossupError
from tossup.sandbox import Limits, Outcome, Sandbox, backends, kernel, pool, seccomp, worker


@pytest.fixture
def box(strongest: Sandbox) -> Iterator[Sandbox]:
    with Sandbox(strongest.backend, workers=1, limits=Limits(cpu_seconds=2)) as own:
        yield own


@pytest.mark.parametrize("backend", backends.ORDER)
def test_a_killed_worker_is_replaced_without_a_word(backend: str) -> None:
    skip_unless_offered(backend)
    with Sandbox(backend, workers=1) as box:
        for victim in (0, -1, 0, -1):  # the process that the host started, and the one that forks
            assert box.run("print(1)").stdout == b"1\n"
            os.kill(processes(box)[victim], signal.SIGKILL)
            assert box.run("print(2)").stdout == b"2\n"


def test_a_worker_killed_in_the_middle_of_a_run_is_replaced_once(box: Sandbox) -> None:
    box.run("pass")
    idle, killed = len(processes(box)), list[int]()

    def kill(times: int) -> None:
        """Kill each new worker once it has a run."""
        for _ in range(times):
            until(lambda: len(own := processes(box)) > idle and own[0] not in killed)
            killed.extend(processes(box))
            os.kill(killed[-idle - 1], signal.SIGKILL)

    killer = threading.Thread(target=kill, args=(1,))
    killer.start()
    assert box.run("import time; time.sleep(3); print('second try')").stdout == b"second try\n"
    killer.join()
    killer = threading.Thread(target=kill, args=(2,))
    killer.start()
    result = box.run("import time; time.sleep(600)")
    killer.join()
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.INFRA, None, "worker died")
    gone(killed)
    assert box.run("print(3)").stdout == b"3\n"


def test_a_candidate_that_had_no_core_before_its_tests_ended_is_no_failure(box: Sandbox) -> None:
    """As on a busy machine: the worker of the candidate is held until the tests are done and the run is to stop."""
    box.converse("pass", "pass")
    before = processes(box)
    candidates = box._slots[0].candidate
    assert candidates is not None
    assert candidates._process is not None
    tree = [candidates._process.pid, *children(candidates._process.pid)]
    for _ in range(3):
        for pid in tree:
            os.kill(pid, signal.SIGSTOP)
        wake = threading.Timer(0.3, lambda: [os.kill(pid, signal.SIGCONT) for pid in tree])
        wake.start()
        talk = box.converse("pass", "import os; os.write(5, b'judged')")
        wake.join()
        assert (talk.tests.outcome, talk.verdict) == (Outcome.FINISHED, b"judged")
        assert (talk.candidate.outcome, talk.candidate.reason) == (Outcome.ERROR, "stopped when the tests had ended")
    assert processes(box) == before  # no worker was thought broken
    assert box.run("print(1)").stdout == b"1\n"


def test_a_missing_interpreter_is_our_failure(monkeypatch: pytest.MonkeyPatch, box: Sandbox) -> None:
    assert box.backend
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    result = box.run("print(1)")
    assert result.outcome is Outcome.INFRA
    assert "/nonexistent/python" in result.reason
    talk = box.converse("pass", "pass")
    assert talk.tests.outcome is talk.candidate.outcome is Outcome.INFRA


def test_a_backend_that_stops_working_is_not_replaced_by_a_weaker_one(
    monkeypatch: pytest.MonkeyPatch, box: Sandbox
) -> None:
    before = box.backend
    monkeypatch.setattr(worker, "readable", lambda site: ["/nonexistent"])  # the jail will lack the libraries it needs
    monkeypatch.setattr(worker, "DEVICES", ())
    box._preload = ("a_module_that_does_not_exist",)
    box._setup = None
    result = box.run("print(1)")
    assert result.outcome is Outcome.INFRA
    assert "worker" not in result.stdout.decode()
    assert box.backend == before


def test_no_memory_for_the_hosts_side_is_our_failure(monkeypatch: pytest.MonkeyPatch, box: Sandbox) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "memfd_create", full)
    result = box.run("print(1)")
    assert (result.outcome, "No space left" in result.reason) == (Outcome.INFRA, True)


def test_too_few_descriptors_is_our_failure(box: Sandbox) -> None:
    box.run("pass")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        result = box.run("print(1)")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.outcome is Outcome.INFRA
    assert box.run("print(1)").stdout == b"1\n"


def test_no_temporary_files_are_needed(box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    for _ in range(20):  # what others make there at the same time does not come every time
        before = set(os.listdir("/dev/shm"))
        assert box.run("open('/tmp/x', 'w').write('x'); print(1)").stdout in (b"1\n", b"")
        if set(os.listdir("/dev/shm")) <= before:
            return
    pytest.fail("every run left something")


def test_an_environment_in_tmp_is_seen_and_read_only(strongest: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        packages = Path(folder, "site-packages")
        packages.mkdir()
        (packages / "installed_in_tmp.py").write_text("number = 42")
        monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
        with Sandbox(strongest.backend, workers=1) as own:
            assert own.run("import installed_in_tmp as i; print(i.number)").stdout == b"42\n"
            result = own.run("import installed_in_tmp as i; open(i.__file__, 'a').write('x')")
            assert result.outcome is Outcome.ERROR
        assert (packages / "installed_in_tmp.py").read_text() == "number = 42"


UNUSUAL_HOST = """
import os, signal
from tossup.sandbox import Sandbox
program = '''
import os, signal, time
kinds = signal.SIGCHLD, signal.SIGALRM, signal.SIGHUP, signal.SIGTERM
print([signal.getsignal(s) == signal.SIG_DFL for s in kinds], signal.getsignal(signal.SIGINT) == signal.default_int_handler)
signal.signal(signal.SIGALRM, lambda *a: print("ring"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.1)
print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
'''
for s in (signal.SIGCHLD, signal.SIGINT, signal.SIGALRM, signal.SIGHUP, signal.SIGTERM):
    signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
os.umask(0o777)
with Sandbox(workers=1) as box:
    print(box.run(program).stdout.decode(), box.run("raise SystemExit(3)").exit_code)
"""


def test_what_the_host_ignores_blocks_or_masks_does_not_reach_a_run() -> None:
    """A host that ignores SIGCHLD would hide how runs end; a blocked or ignored signal would change programs."""
    done = subprocess.run([sys.executable, "-c", UNUSUAL_HOST], capture_output=True, text=True)
    assert done.stdout.split("\n") == ["[True, True, True, True] True", "ring", "0", " 3", ""], done


def test_closing_leaves_no_process_and_a_closed_sandbox_says_so(strongest: Sandbox) -> None:
    box = Sandbox(strongest.backend, workers=2)
    assert box.run("pass").outcome is Outcome.FINISHED
    talk = box.converse("pass", "pass")
    assert talk.tests.outcome is Outcome.FINISHED, talk
    pids = processes(box)
    assert len(pids) >= 2
    box.close()
    gone(pids)
    with pytest.raises(ValueError, match="closed"):
        box.run("pass")
    box.close()


@pytest.mark.parametrize("backend", backends.ORDER)
def test_a_dead_host_leaves_no_process(backend: str) -> None:
    """Also where a fork of the host lives on and holds copies of its descriptors, and where a program is running."""
    skip_unless_offered(backend)
    script = f"""
    import os, sys, threading, time
    from tossup.sandbox import Sandbox
    box = Sandbox("{backend}", workers=1)
    box.run("pass")
    from tests.sandbox.processes import processes, until
    idle = len(processes(box))
    threading.Thread(target=box.run, args=("import time; time.sleep(600)",), daemon=True).start()
    until(lambda: len(processes(box)) > idle)
    if os.fork() == 0:
        os.close(1)
        time.sleep(20)
        os._exit(0)
    print(*processes(box), flush=True)
    time.sleep(600)
    """
    host = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert host.stdout is not None
    pids = [int(pid) for pid in host.stdout.readline().split()]
    assert len(pids) >= 2
    host.kill()
    host.wait()
    host.stdout.close()
    gone(pids)


def test_a_fork_of_the_host_starts_workers_of_its_own(box: Sandbox) -> None:
    box.run("pass")
    pids = processes(box)
    closed = Sandbox(box.backend, workers=1)
    closed.close()
    child = os.fork()
    if child == 0:
        good = box.run("print(1)").stdout == b"1\n" and not set(processes(box)) & set(pids) and closed._closed
        box.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert processes(box) == pids
    assert box.run("print(2)").stdout == b"2\n"


def test_a_worker_outlives_the_thread_that_started_it(box: Sandbox) -> None:
    thread = threading.Thread(target=box.run, args=("pass",))
    thread.start()
    thread.join()
    pids = processes(box)
    assert box.run("print(1)").stdout == b"1\n"
    assert processes(box) == pids


def test_an_interrupt_ends_the_run(box: Sandbox) -> None:
    box.run("pass")
    pids = processes(box)

    def interrupt() -> None:
        until(lambda: len(processes(box)) > len(pids))
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts with it ignored
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            box.run("import time; time.sleep(600)", limits=Limits(cpu_seconds=1, wall_seconds=120))
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    gone(pids)
    assert box.run("print(1)").stdout == b"1\n"


def test_runs_leave_nothing_behind(box: Sandbox) -> None:
    def state() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), len(processes(box)), threading.active_count()

    programs = (
        "print(1)",
        "1 / 0",
        "import os; os._exit(1)",
        "print('x' * 2_000_000)",
        "import os; os.mkdir('d')",
        "def",
    )
    box.run("pass")
    box.converse("pass", "pass")
    before = state()
    for _ in range(20):
        for program in programs:
            box.run(program)
        box.run_many("print(1)", [b"", b""])
        box.converse("pass", "import os; os.write(5, b'x')")
    assert state() == before


def test_none_is_used_only_by_name_and_unknown_names_are_errors() -> None:
    with Sandbox("none", workers=1) as box:
        assert box.backend == "none"
        assert box.run("import os; print(os.path.exists('/proc/self'))").stdout == b"True\n"
    assert "none" not in backends.ORDER
    with pytest.raises(ValueError, match="expected auto, namespaces"):
        Sandbox("docker")
    with pytest.raises(ValueError, match="workers"):
        Sandbox(workers=0)


def restricted(script: str, *denied: int) -> str:
    """What a script prints when these system calls answer EPERM to it and its children, as in a container."""
    child_read, child_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(child_write, 1)
            kernel._prctl(38, "no_new_privs", 1)
            code: seccomp.Code = [(0x20, 0, 0, 0)]
            for number in denied:
                code += [(0x15, 0, 1, number), (0x06, 0, 0, seccomp.fail(errno.EPERM))]
            code.append((0x06, 0, 0, seccomp.ALLOW))
            kernel.load_seccomp(seccomp._assemble(code, [], {}))
            os.execv(sys.executable, [sys.executable, "-c", textwrap.dedent(script)])
        finally:
            os._exit(1)
    os.close(child_write)
    with os.fdopen(child_read) as f:
        text = f.read()
    os.waitpid(child, 0)
    return text


CHOOSE = """
from tossup.sandbox import Sandbox, backends
from tossup.records import TossupError
box = Sandbox(workers=1)
try:
    print(box.backend, box.run("print(1)").stdout)
except TossupError as e:
    print("error:", e)
    print(box.run("print(1)").outcome)
box.close()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="written with x86_64 call numbers")
def test_auto_takes_the_strongest_that_works_and_says_when_there_is_none() -> None:
    unshare, landlock, chroot = 272, 444, 161
    if not backends.report("landlock").error:
        assert restricted(CHOOSE, unshare).startswith("landlock b'1")
    if os.geteuid() == 0:
        assert restricted(CHOOSE, unshare, landlock).startswith("chroot b'1")
    nothing = restricted(CHOOSE, unshare, landlock, chroot)
    assert nothing.startswith("error: no isolation for untrusted programs on this machine (namespaces: ")
    assert "docs/sandbox.md" in nothing
    assert nothing.rstrip().endswith("infra")


def test_a_backend_that_lets_something_through_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    report = backends.attack("none")
    assert not report.works
    monkeypatch.setitem(
        backends._reports, "landlock", backends.Report("landlock", attempts={}, got_out=("fork (forked)",))
    )
    with pytest.raises(TossupError, match="landlock: lets through: fork"):
        Sandbox("landlock").backend  # noqa: B018 - the property works it out


@pytest.mark.parametrize("backend", backends.ORDER)
def test_a_host_that_is_pid_1_is_not_taken_for_the_run_itself(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """As in a container that starts with it: a run that signals itself had seemed to reach the host."""
    skip_unless_offered(backend)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert backends.attack(backend).works


def test_want_of_memory_is_no_reason_to_take_a_weaker_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_reports", {})
    monkeypatch.setattr(backends, "attack", lambda name: backends.Report(name, error="no memory", errno=errno.ENOMEM))
    with pytest.raises(TossupError, match=r"\(namespaces: no memory\)"):
        backends.choose("auto")


def test_the_hosts_own_memory_is_not_in_a_run(box: Sandbox) -> None:
    secret = b"host-" + b"secret"
    holder = ctypes.create_string_buffer(secret * 10)
    os.environ["TOSSUP_TEST_SECRET"] = secret.decode()
    try:
        search = """
def f():
    import gc
    needle = input()[::-1]
    return [o for o in gc.get_objects() if needle in repr(o)[:500]]
import os
print(f(), dict(os.environ))
"""
        result = box.run(search, secret[::-1])
    finally:
        del os.environ["TOSSUP_TEST_SECRET"]
    assert holder.value.startswith(secret)
    assert result.outcome is Outcome.FINISHED
    assert b"TOSSUP_TEST_SECRET" not in result.stdout
    assert result.stdout.startswith(b"[]")


def test_programs_are_never_in_the_messages_to_a_zygote(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    original = pool.Worker.send

    def spy(self: pool.Worker, job: dict[str, object], fds: list[int]) -> None:
        sent.append(repr(job).encode())
        original(self, job, fds)

    monkeypatch.setattr(pool.Worker, "send", spy)
    box.run("print('the program')", b"the input")
    assert len(sent) == 1
    assert b"the program" not in sent[0]
    assert b"the input" not in sent[0]
