"""The run itself, in the process that the zygote forked for it: give up everything, then become the program.

What is dropped, in this order: resources, capabilities, paths (Landlock), descriptors, system calls (seccomp). Only when
all of it is in place does the byte in `stage` say so; a run that ends before it is our failure, not the program's. The
page that holds `stage` is unmapped before the program's first instruction.

The program and its data come straight from the host by descriptor and are never in the zygote's memory, where the next
run could find them. Its output goes straight to the host.
"""

from __future__ import annotations

import atexit
import gc
import io
import marshal
import mmap
import os
import resource
import sys
import threading
import types
from dataclasses import dataclass

from tossup.sandbox import kernel, seccomp

RUNNING = 1
"""First byte of the stage page: the jail is complete and the program starts. Else a message follows, if any."""
STACK_BYTES = 64 << 20
ADDRESS_SPACE_SLACK = 8 << 30
"""Beyond memory_bytes: threads reserve 64 MB each of addresses that they never use. Bounds the size of page tables."""


@dataclass(frozen=True, slots=True)
class Jail:
    """What the zygote prepared, so that a run has little to do."""

    namespaces: bool
    landlock: int | None
    seccomp: bytes | None
    parent: int
    """The zygote's id as the run sees it: 0 from inside a pid namespace."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run. `fds`: program, code (-1: none), stdin, stdout, stderr, then what becomes 3, 4, 5 in the program."""

    fds: tuple[int, ...]
    argv: tuple[str, ...]
    cpu_seconds: float
    memory_bytes: int
    file_bytes: int
    open_files: int
    threads: int


def become_program(jail: Jail, job: Job, stage: mmap.mmap) -> None:
    """Run the job in this process and end it. Never returns."""
    status = 70
    try:
        source, code_fd = enter(jail, job)
        code = load(source, code_fd, stage)
        stage.close()
        status = run(code, job.argv)
    except BaseException as e:  # noqa: BLE001 - whatever it is, this process must end here and say why
        if not stage.closed:
            text = f"{type(e).__name__}: {e}".encode()[:2000]
            stage[1 : 1 + len(text)] = text
    finally:
        os._exit(status)


def enter(jail: Jail, job: Job) -> tuple[bytes, int]:
    """Close the jail around this process; returns the program's source and the descriptor for its compiled form."""
    source = os.pread(job.fds[0], os.fstat(job.fds[0]).st_size, 0)
    limit_resources(job, jail.namespaces)
    kernel.drop_privileges()
    kernel.die_with_parent()
    if os.getppid() != jail.parent:
        raise OSError(f"the zygote {jail.parent} has gone")
    if jail.landlock is not None:
        kernel.landlock_restrict(jail.landlock)
    code_fd = arrange_descriptors(job)
    if jail.seccomp is not None:
        kernel.load_seccomp(seccomp.for_process(jail.seccomp, os.getpid()))
    return source, code_fd


def arrange_descriptors(job: Job) -> int:
    """Put the job's pipes at 0, 1, 2, 3... and close all others, but for the compiled code's."""
    _, code, *pipes = job.fds
    for target, fd in enumerate(pipes):
        os.dup2(fd, target)
    if code < 0:
        kernel.close_range(len(pipes), kernel.LAST_DESCRIPTOR)
    else:
        kernel.close_range(len(pipes), code - 1)
        kernel.close_range(code + 1, kernel.LAST_DESCRIPTOR)
    return code


def limit_resources(job: Job, own_user_namespace: bool) -> None:
    """Limits that the kernel holds; the zygote watches CPU time, wall time and threads besides."""
    limit(resource.RLIMIT_CPU, int(job.cpu_seconds) + 2)
    limit(resource.RLIMIT_DATA, job.memory_bytes)
    limit(resource.RLIMIT_AS, job.memory_bytes + ADDRESS_SPACE_SLACK)
    limit(resource.RLIMIT_FSIZE, job.file_bytes)
    limit(resource.RLIMIT_NOFILE, job.open_files)
    if own_user_namespace:  # elsewhere the host's own threads count too; and uid 0 is not bound by it anywhere
        limit(resource.RLIMIT_NPROC, job.threads + 2)


def limit_all_runs() -> None:
    """The limits that are the same for every run; a zygote sets them once and its children inherit them."""
    limit(resource.RLIMIT_STACK, STACK_BYTES)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        limit(kind, 0)
    limit(resource.RLIMIT_SIGPENDING, 64)


def limit(kind: int, value: int) -> None:
    """Set a limit, soft and hard, or leave it where a lower hard one is in force."""
    try:
        resource.setrlimit(kind, (value, value))
    except ValueError:
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))


def load(source: bytes, code_fd: int, stage: mmap.mmap) -> types.CodeType | None:
    """Compile the program, or take what an earlier run of the same program compiled. None after a syntax error."""
    stage[0] = RUNNING
    try:
        if code_fd >= 0 and (size := os.fstat(code_fd).st_size):
            loaded: types.CodeType = marshal.loads(os.pread(code_fd, size, 0))
            return loaded
        code = compile(source, "main.py", "exec", dont_inherit=True)
        if code_fd >= 0:
            os.pwrite(code_fd, marshal.dumps(code), 0)
        return code
    except BaseException:  # noqa: BLE001 - SyntaxError, RecursionError, MemoryError...: the program's, shown as Python would
        sys.excepthook(*sys.exc_info())
        return None
    finally:
        if code_fd >= 0:
            os.close(code_fd)


def prepare_streams() -> None:
    """Standard streams for descriptors 0, 1, 2 as they will be: a file to read and two pipes. Called in the zygote,

    because making them in every run would cost a tenth of it.
    """

    def text(fd: int, mode: str, name: str, errors: str) -> io.TextIOWrapper:
        raw = io.FileIO(fd, mode, closefd=False)
        raw.name = name
        buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors=errors, line_buffering=fd == 2)
        setattr(stream, "mode", mode)  # noqa: B010 - as on the streams that CPython makes; typed as read-only
        return stream

    pipe = os.pipe()
    empty = os.memfd_create("stdin")
    for fd, target in ((empty, 0), (pipe[1], 1), (pipe[1], 2)):
        os.dup2(fd, target)
    for fd in (empty, *pipe):
        os.close(fd)
    sys.stdin = text(0, "r", "<stdin>", "strict")
    sys.stdout = text(1, "w", "<stdout>", "strict")
    sys.stderr = text(2, "w", "<stderr>", "backslashreplace")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def run(code: types.CodeType | None, argv: tuple[str, ...]) -> int:
    """Execute the program as `__main__` and end it as the interpreter would; returns its exit status."""
    if code is None:
        return 1
    sys.argv = ["main.py", *argv]
    main = types.ModuleType("__main__")
    main.__file__ = "main.py"
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    gc.enable()
    status = 0
    try:
        exec(code, main.__dict__)
    except BaseException as e:  # noqa: BLE001 - the program's own end, whatever it raises
        status = exit_status(e)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


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
