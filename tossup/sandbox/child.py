"""The run itself, in the process that the zygote forked for it: give up everything, then become the program.

What is dropped, in this order: resources, capabilities, paths (Landlock), descriptors, system calls (seccomp). Only when
all of it is in place does the byte in `stage` say so; a run that ends before it is our failure, not the program's. The
page that holds `stage` is unmapped before the program's first instruction.

The program and its data come straight from the host by descriptor and are never in the zygote's memory, where the next
run could find them. Its output goes straight to the host.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import gc
import io
import marshal
import mmap
import os
import resource
import struct
import sys
import threading
import types
from collections.abc import Sequence
from dataclasses import dataclass

from tossup.sandbox import kernel
from tossup.sandbox.seccomp import places_of_own_pid

RUNNING = 1
"""First byte of the stage page: the jail is complete and the program starts. Else a message follows, if any."""
MOST_DESCRIPTORS = 8
"""That come with a job: the program, a place for its compiled form, and what becomes 0 to 5."""
STACK_BYTES = 64 << 20
ADDRESS_SPACE_SLACK = 8 << 30
"""Beyond memory_bytes: threads reserve 64 MB each of addresses that they never use. Bounds the size of page tables."""


class Jail:
    """How a run closes its jail, prepared by the zygote: whatever a run has to make or look up costs it more than the call."""

    def __init__(self, namespaces: bool, landlock: int | None, seccomp: ctypes.Array[ctypes.c_char] | None) -> None:
        self.drop_capabilities = kernel.drop_capabilities()
        self.close_from = tuple(map(kernel.close_from, range(MOST_DESCRIPTORS)))
        self.restrict_paths = None if landlock is None else kernel.landlock_restrict(landlock)
        self.filter_calls = None if seccomp is None else kernel.filter_by(seccomp)
        self.filter = seccomp
        self.own_pid_at = () if seccomp is None else places_of_own_pid(seccomp.raw)
        self.parent = None if namespaces else os.getpid()
        """The zygote, on whose death the run must be killed; None where the pid namespace sees to that."""


Limits = Sequence[tuple[int, tuple[int, int]]]
"""Which limit, and soft and hard value, as `setrlimit` takes them."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run may use. `layout` says which of the descriptors that came with it is the program, the compiled code

    (-1: none), stdin, stdout, stderr, and what becomes 3, 4, 5 in the program.
    """

    layout: tuple[int, ...]
    argv: tuple[str, ...]
    cpu_seconds: float
    wall_seconds: float
    memory_bytes: int
    file_bytes: int
    open_files: int
    threads: int
    paired: bool
    """Whether it talks with a run of another zygote, so that it waits whenever that one is kept waiting."""


def become_program(jail: Jail, job: Job, fds: Sequence[int], limits: Limits, stage: mmap.mmap) -> None:
    """Run the job in this process and end it. Never returns."""
    status = 70
    try:
        source, compiled, code_fd = enter(jail, job, fds, limits)
        code = load(source, compiled, code_fd, stage)
        stage.close()
        status = run(code, job.argv)
    except BaseException as e:  # noqa: BLE001 - whatever it is, this process must end here and say why
        if not stage.closed:
            text = f"{type(e).__name__}: {e}".encode()[:2000]
            stage[1 : 1 + len(text)] = text
    finally:
        os._exit(status)


def enter(jail: Jail, job: Job, fds: Sequence[int], limits: Limits) -> tuple[bytes, bytes, int]:
    """Close the jail around this process.

    Returns the program's source, its compiled form if an earlier run has left it (the source is empty then), and else a
    descriptor to leave it at, or -1.
    """
    program, code, *pipes = [fds[i] if i >= 0 else -1 for i in job.layout]
    source = compiled = b""
    if code >= 0:
        compiled = os.pread(code, os.lseek(code, 0, os.SEEK_END), 0)
    if compiled:
        code = -1
    else:
        source = os.pread(program, os.lseek(program, 0, os.SEEK_END), 0)
    for kind, pair in limits:
        resource.setrlimit(kind, pair)
    jail.drop_capabilities()
    if jail.parent is not None:
        kernel.die_with_parent()
        if os.getppid() != jail.parent:
            raise OSError(f"the zygote {jail.parent} has gone")
    if jail.restrict_paths is not None:
        jail.restrict_paths()
    if code >= 0:
        pipes.append(code)
        code = len(pipes) - 1
    for target, fd in enumerate(pipes):
        os.dup2(fd, target)
    jail.close_from[len(pipes)]()
    if jail.filter_calls is not None and jail.filter is not None:
        for at in jail.own_pid_at:
            struct.pack_into("=I", jail.filter, at, os.getpid())
        jail.filter_calls()
    return source, compiled, code


def limits_of(job: Job, own_user_namespace: bool) -> Limits:
    """Limits that the kernel holds; the zygote watches CPU time, wall time and threads besides."""
    wanted = {
        resource.RLIMIT_CPU: int(job.cpu_seconds) + 2,
        resource.RLIMIT_DATA: job.memory_bytes,
        resource.RLIMIT_AS: job.memory_bytes + ADDRESS_SPACE_SLACK,
        resource.RLIMIT_FSIZE: job.file_bytes,
        resource.RLIMIT_NOFILE: job.open_files,
    }
    if own_user_namespace:  # elsewhere the host's own threads count too; and uid 0 is not bound by it anywhere
        wanted[resource.RLIMIT_NPROC] = job.threads + 2
    return [(kind, bounded(kind, value)) for kind, value in wanted.items()]


def bounded(kind: int, value: int) -> tuple[int, int]:
    """A limit, soft and hard, no higher than the hard one in force."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def limit_all_runs() -> None:
    """The limits that are the same for every run; a zygote sets them once and its children inherit them."""
    wanted = {
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    for kind, value in wanted.items():
        resource.setrlimit(kind, bounded(kind, value))


def load(source: bytes, compiled: bytes, code_fd: int, stage: mmap.mmap) -> types.CodeType | None:
    """Compile the program, or take what an earlier run of the same program compiled. None after a syntax error."""
    stage[0] = RUNNING
    try:
        if compiled:
            loaded: types.CodeType = marshal.loads(compiled)
            return loaded
        code = compile(source, "main.py", "exec", dont_inherit=True)
        if code_fd >= 0:
            leave(code, code_fd)
        return code
    except BaseException:  # noqa: BLE001 - SyntaxError, RecursionError, MemoryError...: the program's, shown as Python would
        sys.excepthook(*sys.exc_info())
        return None
    finally:
        if code_fd >= 0:
            os.close(code_fd)


def leave(code: types.CodeType, fd: int) -> None:
    """Leave the compiled form to later runs, all of it or nothing."""
    try:
        data = marshal.dumps(code)
        if os.pwrite(fd, data, 0) < len(data):
            os.ftruncate(fd, 0)
    except (OSError, ValueError, MemoryError):
        return  # too big for this run's limits, or nested too deeply: later runs compile it again


def stream(fd: int, mode: str, name: str, errors: str = "strict") -> io.TextIOWrapper:
    """A standard stream as CPython makes it."""
    raw = io.FileIO(fd, mode, closefd=False)
    raw.name = name
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    text = io.TextIOWrapper(buffer, encoding="utf-8", errors=errors, line_buffering=fd == 2)
    setattr(text, "mode", mode)  # noqa: B010 - as on the streams that CPython makes; typed as read-only
    return text


def prepare_streams() -> None:
    """Standard streams for descriptors 0, 1, 2 as they will be: a file to read and two pipes. Called in the zygote,

    because making them in every run would cost a tenth of it.
    """
    pipe = os.pipe()
    empty = os.memfd_create("stdin")
    for fd, target in ((empty, 0), (pipe[1], 1), (pipe[1], 2)):
        os.dup2(fd, target)
    for fd in (empty, *pipe):
        os.close(fd)
    sys.stdin, sys.stdout = stream(0, "r", "<stdin>"), stream(1, "w", "<stdout>")
    sys.stderr = stream(2, "w", "<stderr>", "backslashreplace")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def prepare_main() -> None:
    """An empty module `__main__` for the program. Called in the zygote, as `prepare_streams`."""
    main = types.ModuleType("__main__")
    main.__file__ = "main.py"
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv, sys.orig_argv = ["main.py"], []


def run(code: types.CodeType | None, argv: tuple[str, ...]) -> int:
    """Execute the program as `__main__` and end it as the interpreter would; returns its exit status."""
    if code is None:
        return 1
    if argv:
        sys.argv += argv
    status = execute(code)
    if _thread._count():
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def execute(code: types.CodeType) -> int:
    """Execute the program, up to the end of its main thread."""
    gc.enable()
    try:
        exec(code, vars(sys.modules["__main__"]))
    except BaseException as e:  # noqa: BLE001 - the program's own end, whatever it raises
        return exit_status(e)
    return 0


def exit_status(e: BaseException) -> int:
    """The status that CPython gives a program ended by this exception, after printing what it prints."""
    if not isinstance(e, SystemExit):
        e.__traceback__ = e.__traceback__.tb_next if e.__traceback__ else None
        sys.excepthook(type(e), e, e.__traceback__)
        return 1
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return e.code & 0xFF
    print(e.code, file=sys.stderr)
    return 1
