"""The system calls that a judged program may make: a table to read, and the filter that the kernel loads from it.

Everything is refused that the table does not name. Four answers are possible:
    allowed      the call happens
    refused      EPERM, so that Python raises PermissionError and the program may go on
    unknown      ENOSYS, for calls that libc tries first and replaces (clone3, openat2) and for calls newer than this table
    killed       the process dies by SIGSYS: nothing that solves a problem makes these calls, so a try is reported as one

What the file system, the memory limit and the process limit rest on is here too, because the kernel's other fences have
holes: Landlock does not cover chmod, chown, utime, xattr or UDP, and before ABI 3 truncation; RLIMIT_DATA does not cover
shared, memfd or stack mappings; RLIMIT_NPROC does not bind uid 0. One program is one process: fork and exec are refused,
threads are allowed.

The filter is a binary search over call numbers, since the kernel runs it once per possible number when it is loaded: a
linear one takes twice as long to load. And it is loaded in two parts, because loading takes time by the length of the code:
the long part by the zygote, once, for itself and all that it forks; in every run only the short part, which takes away
what a zygote needs to fork a run and a run to close its jail (ZYGOTE_CALLS). Of two filters the kernel obeys the stricter,
so that together they answer as the whole table.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Callable, Mapping

ALLOW, KILL = 0x7FFF0000, 0x80000000


def fail(code: int) -> int:
    """The filter's answer that makes a call return this errno (0: it seems to succeed and does nothing)."""
    return 0x00050000 | code


ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> column in the tables below, and the AUDIT_ARCH value that the kernel reports for its native calls."""

Numbers = Mapping[str, tuple[int | None, int | None]]
"""Call -> number on x86_64 and on aarch64; None where that machine has no such call."""


def _numbers(table: str) -> Numbers:
    """The calls of a table of `name:x86_64:aarch64`."""
    return {
        name: (None if x86_64 == "-" else int(x86_64), None if aarch64 == "-" else int(aarch64))
        for name, x86_64, aarch64 in (entry.split(":") for entry in table.split())
    }


ALLOWED: dict[str, Numbers] = {
    "memory, bounded by RLIMIT_DATA and RLIMIT_AS (mmap is checked below)": _numbers(
        "munmap:11:215 mprotect:10:226 mremap:25:216 madvise:28:233 brk:12:214"
    ),
    "open descriptors: reading, writing, waiting (fcntl and ioctl are checked below)": _numbers("""
        read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 lseek:8:62 close:3:57
        close_range:436:436 dup:32:23 dup2:33:- dup3:292:24 pipe:22:- pipe2:293:59 poll:7:- ppoll:271:73 select:23:-
        pselect6:270:72 epoll_create:213:- epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232:- epoll_pwait:281:22
        eventfd:284:- eventfd2:290:19
    """),
    "files: which ones, and whether to write, is for the mounts and Landlock (open and openat are checked below)": _numbers("""
        fstat:5:80 stat:4:- lstat:6:- newfstatat:262:79 statx:332:291 access:21:-
        faccessat:269:48 faccessat2:439:439 readlink:89:- readlinkat:267:78 getdents:78:- getdents64:217:61
        ftruncate:77:46 mkdir:83:- mkdirat:258:34 rmdir:84:- unlink:87:- unlinkat:263:35 rename:82:-
        renameat:264:38 symlink:88:- symlinkat:266:36 chdir:80:49 fchdir:81:50 getcwd:79:17
        umask:95:166 fadvise64:221:223
    """),
    "threads and their locks (clone is checked below)": _numbers("""
        futex:202:98 set_robust_list:273:99 set_tid_address:218:96 rseq:334:293 sched_yield:24:124
        sched_getaffinity:204:123 getcpu:309:168
    """),
    "ending, and asking about oneself": _numbers("""
        exit:60:93 exit_group:231:94 gettid:186:178 getpid:39:172 getppid:110:173 getuid:102:174 geteuid:107:175
        getgid:104:176 getegid:108:177 getgroups:115:158 getresuid:118:148 getresgid:120:150 getpgrp:111:-
        getpgid:121:155 getsid:124:156 getrlimit:97:163 getrusage:98:165 times:100:153 wait4:61:260 waitid:247:95
        uname:63:160 sysinfo:99:179
    """),
    "own signals and timers (kill and tgkill are checked below)": _numbers("""
        rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136 rt_sigtimedwait:128:137
        rt_sigsuspend:130:133 sigaltstack:131:132 pause:34:- alarm:37:- setitimer:38:103 getitimer:36:102
        restart_syscall:219:128
    """),
    "reading clocks, sleeping, randomness": _numbers("""
        clock_gettime:228:113 clock_getres:229:114 clock_nanosleep:230:115 nanosleep:35:101 gettimeofday:96:169
        time:201:- getrandom:318:278
    """),
    "the two ends of asyncio's wake-up socket (socketpair is checked below)": _numbers("""
        sendto:44:206 recvfrom:45:207 sendmsg:46:211 recvmsg:47:212 shutdown:48:210 getsockopt:55:209
        getsockname:51:204 getpeername:52:205
    """),
}

SEEM_TO_SUCCEED: Numbers = _numbers("fsync:74:82 fdatasync:75:83")
"""A program may flush its own files; making a host's disk busy is another matter."""

UNKNOWN: Numbers = _numbers("clone3:435:435 openat2:437:437")
"""The filter cannot look behind their pointers; libc falls back to clone and openat."""

KILLED: Numbers = _numbers("""
    ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271 mount:165:40 umount2:166:39
    pivot_root:155:41 chroot:161:51 unshare:272:97 setns:308:268 open_tree:428:428 move_mount:429:429
    fsopen:430:430 mount_setattr:442:442 bpf:321:280 perf_event_open:298:241 add_key:248:217 request_key:249:218
    keyctl:250:219 io_uring_setup:425:425 userfaultfd:323:282 init_module:175:105 finit_module:313:273
    delete_module:176:106 kexec_load:246:104 kexec_file_load:320:294 reboot:169:142 open_by_handle_at:304:265
    pidfd_getfd:438:438 capset:126:91
""")

CHECKED: Numbers = _numbers("""
    mmap:9:222 clone:56:220 fcntl:72:25 ioctl:16:29 prctl:157:167 prlimit64:302:261 kill:62:129 tgkill:234:131
    socketpair:53:199 open:2:- openat:257:56 renameat2:316:276
""")
"""Allowed for some arguments: see `_checks`."""

ZYGOTE_CALLS = {
    "clone": "fork",
    "fork": "the same, in another libc",
    "pidfd_open": "wait for a run",
    "kill": "end a run",
    "unshare": "a pid namespace for a run",
    "setns": "come back from it",
    "mount": "a fresh /tmp",
    "umount2": "let go of a used one",
    "utimensat": "date a fresh one, to see whether it is used",
    "prlimit64": "limits",
    "capset": "drop capabilities",
    "prctl": "die with the parent; load the second part",
    "landlock_restrict_self": "close the file system",
    "tgkill": "nothing, but its check needs the id of the run",
}
"""What the first part of the filter leaves to the second, and what zygote and run do with it until then."""
UNNAMED: Numbers = _numbers("fork:57:- pidfd_open:434:434 utimensat:280:88 landlock_restrict_self:446:446")
"""The numbers of those that the table refuses by not naming them."""

NEWEST = 450
"""Numbers above this are newer than the table, or another machine's (x32 starts at 2^30): they answer ENOSYS."""

OWN_PID = 0x7F53B0C5
"""Stands in the compiled filter for the process's own id, which is known only after the fork."""

_LOAD, _AND, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH = 0, 4
Code = list[tuple[int, int, int, int]]
"""Classic BPF instructions: operation, jump if true, jump if false, operand."""


def _argument(i: int, high: bool = False) -> tuple[int, int, int, int]:
    return (_LOAD, 0, 0, 16 + 8 * i + 4 * high)


def _one_of(i: int, values: tuple[int, ...], otherwise: int) -> Code:
    """Allow the call if argument i is one of these values."""
    tests = [(_EQUAL, len(values) - n, 0, value) for n, value in enumerate(values)]
    return [_argument(i), *tests, (_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, ALLOW)]


def _signal_to_itself(signal_argument: int) -> Code:
    """Only to its own process, and neither SIGKILL nor SIGSTOP: an end that we did not cause would look like ours."""
    return [
        _argument(0), (_EQUAL, 0, 3, OWN_PID),
        _argument(signal_argument), (_EQUAL, 1, 0, 9), (_EQUAL, 0, 1, 19),
        (_RETURN, 0, 0, fail(errno.EPERM)), (_RETURN, 0, 0, ALLOW),
    ]  # fmt: skip


def _plain_open(flags_argument: int) -> Code:
    """Neither O_TRUNC without a mode for writing, which empties files past Landlock before ABI 3, as truncate does;

    nor O_TMPFILE, which makes a file even in a directory that has been removed, such as the root of the chroot backend.
    """
    unnamed, mode_and_truncate, read_only, neither = 0x400000, 0x203, 0x200, 0x203
    return [
        _argument(flags_argument), (_ANY_BIT, 3, 0, unnamed), (_AND, 0, 0, mode_and_truncate),
        (_EQUAL, 1, 0, read_only), (_EQUAL, 0, 1, neither),
        (_RETURN, 0, 0, fail(errno.EPERM)), (_RETURN, 0, 0, ALLOW),
    ]  # fmt: skip


def _checks() -> dict[str, Code]:
    refuse = fail(errno.EPERM)
    shared_anonymous, grows_down_or_huge, new_thread, namespaces = 0x21, 0x40100, 0x10000, 0x7E020080
    limit_cpu, limit_stack, limit_realtime = 0, 3, 15
    return {
        # Shared anonymous memory, downward-growing maps and huge pages escape RLIMIT_DATA.
        "mmap": [
            _argument(3), (_ANY_BIT, 3, 0, grows_down_or_huge), (_AND, 0, 0, shared_anonymous),
            (_EQUAL, 1, 0, shared_anonymous), (_RETURN, 0, 0, ALLOW), (_RETURN, 0, 0, refuse),
        ],
        # A thread of this process, yes; another process, no.
        "clone": [
            _argument(0), (_ANY_BIT, 3, 0, namespaces), (_ANY_BIT, 1, 0, new_thread),
            (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, ALLOW), (_RETURN, 0, 0, KILL),
        ],
        # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC. Not leases and locks, which can hold up other
        # processes on the same files; not F_SETOWN, which sends signals; not F_SETPIPE_SZ, which takes memory.
        "fcntl": _one_of(1, (0, 1, 2, 3, 4, 1030), refuse),
        # TCGETS (isatty), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Never TIOCSTI and devices' own calls.
        "ioctl": _one_of(1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451), fail(errno.ENOTTY)),
        # PR_SET_NAME, PR_GET_NAME and PR_SET_VMA, which libc uses to name threads and maps.
        "prctl": _one_of(0, (15, 16, 0x53564D41), refuse),
        # Its own limits only. Some are set already and must stay; a program that sets them is told yes: contest programs
        # raise the stack limit, which is at its most, and a lower CPU limit ends in a SIGKILL that looks like ours.
        "prlimit64": [
            _argument(0), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, refuse),
            _argument(2), (_EQUAL, 0, 2, 0), _argument(2, high=True), (_EQUAL, 4, 0, 0),
            _argument(1), (_EQUAL, 3, 0, limit_cpu), (_EQUAL, 2, 0, limit_stack), (_EQUAL, 1, 0, limit_realtime),
            (_RETURN, 0, 0, ALLOW), (_RETURN, 0, 0, fail(0)),
        ],
        "kill": _signal_to_itself(1),
        "tgkill": _signal_to_itself(2),
        # A pair of connected Unix stream sockets. A datagram one could still send to other names.
        "socketpair": [
            _argument(0), (_EQUAL, 0, 3, 1), _argument(1), (_AND, 0, 0, 0xF), (_EQUAL, 1, 0, 1),
            (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, ALLOW),
        ],
        "open": _plain_open(1),
        "openat": _plain_open(2),
        # Without replacing, and exchanging. Not RENAME_WHITEOUT, which leaves a device file behind.
        "renameat2": _one_of(4, (0, 1, 2), refuse),
    }  # fmt: skip


def compile_filter(machine: str = "", part: str = "whole") -> bytes:
    """The filter for this machine, with OWN_PID standing for the process's own id; or one of its parts.

    `part` "inherited" allows ZYGOTE_CALLS and answers all else as the whole does, "own" allows all but ZYGOTE_CALLS.

    Raises:
        OSError: ENOSYS on a machine whose call numbers are not in the tables.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call table for {machine}, only for {', '.join(ARCHITECTURES)}")
    column, architecture = ARCHITECTURES[machine]
    answers: dict[int, int | str] = {}

    def enter(numbers: Numbers, answer: Callable[[str], int | str]) -> None:
        answers.update({n: answer(name) for name, pair in numbers.items() if (n := pair[column]) is not None})

    for group in ALLOWED.values():
        enter(group, lambda _: ALLOW)
    enter(SEEM_TO_SUCCEED, lambda _: fail(0))
    enter(UNKNOWN, lambda _: fail(errno.ENOSYS))
    enter(KILLED, lambda _: KILL)
    enter(CHECKED, lambda name: name)
    enter(UNNAMED, lambda _: fail(errno.EPERM))
    pairs = {**KILLED, **CHECKED, **UNNAMED}
    left = {n for name in ZYGOTE_CALLS if (n := pairs[name][column]) is not None}
    if part == "own":
        answers = {n: answers[n] if n in left else ALLOW for n in range(NEWEST + 1)}
    elif part == "inherited":
        answers |= dict.fromkeys(left, ALLOW)
    used = {answer for answer in answers.values() if isinstance(answer, str)}
    checks = {name: code for name, code in _checks().items() if name in used}
    head: Code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, KILL), (_LOAD, 0, 0, _NR)]
    return _assemble(head, _search(_ranges(answers)), checks)


def _ranges(answers: Mapping[int, int | str]) -> list[tuple[int, int | str]]:
    """(first number, answer) of each stretch of numbers with one answer, from 0 up."""
    found: list[tuple[int, int | str]] = []
    for number in range(NEWEST + 2):
        answer = fail(errno.ENOSYS) if number > NEWEST else answers.get(number, fail(errno.EPERM))
        if not found or found[-1][1] != answer:
            found.append((number, answer))
    return found


def _search(ranges: list[tuple[int, int | str]]) -> list[tuple[int, int, int, int] | str]:
    """A binary search over the ranges; a string stands for a jump to the check of that name."""
    if len(ranges) == 1:
        answer = ranges[0][1]
        return [answer] if isinstance(answer, str) else [(_RETURN, 0, 0, answer)]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    return [(_AT_LEAST, len(below), 0, ranges[middle][0]), *below, *above]


def _assemble(head: Code, search: list[tuple[int, int, int, int] | str], checks: Mapping[str, Code]) -> bytes:
    starts: dict[str, int] = {}
    tail: Code = []
    for name, code in checks.items():
        starts[name] = len(search) + len(tail)
        tail += code
    body = [(_JUMP, 0, 0, starts[op] - at - 1) if isinstance(op, str) else op for at, op in enumerate(search)]
    return b"".join(struct.pack("=HBBI", *op) for op in (*head, *body, *tail))


def for_process(program: bytes, pid: int) -> bytes:
    """The compiled filter with a process's own id filled in."""
    return program.replace(struct.pack("=I", OWN_PID), struct.pack("=I", pid))


def own_part(alone: bool) -> ctypes.Array[ctypes.c_char]:
    """The part that a run loads, in a buffer. `alone`: it will be pid 1 of its namespace; else it fills in its id."""
    program = compile_filter(part="own")
    return ctypes.create_string_buffer(for_process(program, 1) if alone else program, len(program))


def places_of_own_pid(program: bytes) -> tuple[int, ...]:
    """The bytes at which a compiled filter wants the process's own id, four of each."""
    return tuple(at for at in range(4, len(program), 8) if struct.unpack_from("=I", program, at) == (OWN_PID,))
