"""The system call filter, run by a small interpreter of BPF, for both machines and without the kernel."""

from __future__ import annotations

import errno
import struct

import pytest

from tossup.sandbox import seccomp

EPERM, ENOSYS, ENOTTY, SUCCESS = (seccomp.fail(code) for code in (errno.EPERM, errno.ENOSYS, errno.ENOTTY, 0))
MACHINES = list(seccomp.ARCHITECTURES)
PID = 4711


class Filter:
    """Answers of a compiled filter."""

    def __init__(self, machine: str, part: str = "whole") -> None:
        self.column, self.architecture = seccomp.ARCHITECTURES[machine]
        program = seccomp.for_process(seccomp.compile_filter(machine, part), PID)
        self.code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]

    def answer(self, number: int, *arguments: int, architecture: int | None = None) -> int:
        padded = [a & 0xFFFFFFFFFFFFFFFF for a in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
        arch = self.architecture if architecture is None else architecture
        data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
        at = value = 0
        while True:
            operation, yes, no, operand = self.code[at]
            at += 1
            if operation == 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            elif operation == 0x54:
                value &= operand
            elif operation == 0x05:
                at += operand
            elif operation == 0x06:
                return int(operand)
            else:
                truth = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[operation]
                at += yes if truth else no

    def named(self, name: str, *arguments: int) -> int:
        number = {**seccomp.CHECKED, **seccomp.KILLED}[name][self.column]
        assert number is not None
        return self.answer(number, *arguments)


@pytest.fixture(params=MACHINES)
def filter_(request: pytest.FixtureRequest) -> Filter:
    return Filter(request.param)


def test_every_number_gets_the_answer_of_the_table(filter_: Filter) -> None:
    wanted: dict[int, int] = {}
    tables = [*((group, seccomp.ALLOW) for group in seccomp.ALLOWED.values()), (seccomp.SEEM_TO_SUCCEED, SUCCESS)]
    for table, answer in (*tables, (seccomp.UNKNOWN, ENOSYS), (seccomp.KILLED, seccomp.KILL)):
        for pair in table.values():
            if (number := pair[filter_.column]) is not None:
                assert number not in wanted
                wanted[number] = answer
    checked = {pair[filter_.column] for pair in seccomp.CHECKED.values()}
    assert not checked & set(wanted)
    for number in set(range(seccomp.NEWEST + 1)) - checked:
        assert filter_.answer(number) == wanted.get(number, EPERM), number
    for number in (seccomp.NEWEST + 1, 1000, 1 << 30, (1 << 30) + 1, 0xFFFFFFFF):
        assert filter_.answer(number) == ENOSYS


def test_another_architecture_is_killed(filter_: Filter) -> None:
    i386 = 0x40000003
    assert filter_.answer(0, architecture=i386) == seccomp.KILL


def test_the_tables_agree_with_what_is_known(filter_: Filter) -> None:
    known = {
        "read": (0, 63), "openat": (257, 56), "newfstatat": (262, 79), "futex": (202, 98), "execve": (59, 221),
        "wait4": (61, 260), "getrandom": (318, 278), "setuid": (105, 146), "socket": (41, 198),
    }  # fmt: skip
    for name, pair in known.items():
        groups = [*seccomp.ALLOWED.values(), seccomp.CHECKED]
        allowed = any(name in group for group in groups)
        if allowed:
            assert any(group.get(name) == pair for group in groups)
        assert filter_.answer(pair[filter_.column]) == (seccomp.ALLOW if allowed else EPERM)


def arguments_decide() -> list[tuple[str, tuple[int, ...], int]]:
    """Call, arguments, answer."""
    a, r = seccomp.ALLOW, EPERM
    private, shared, anonymous, down, huge = 2, 1, 0x20, 0x100, 0x40000
    return [
        ("mmap", (0, 4096, 3, private | anonymous, -1, 0), a),
        ("mmap", (0, 4096, 1, private, 3, 0), a),
        ("mmap", (0, 4096, 1, shared, 3, 0), a),
        ("mmap", (0, 4096, 3, shared | anonymous, -1, 0), r),
        ("mmap", (0, 4096, 3, 3 | anonymous, -1, 0), r),
        ("mmap", (0, 4096, 3, private | anonymous | down, -1, 0), r),
        ("mmap", (0, 4096, 3, private | anonymous | huge, -1, 0), r),
        ("clone", (0x3D0F00,), a),
        ("clone", (17,), r),
        ("clone", (0x4111,), r),
        ("clone", (0x10000000 | 0x10900,), seccomp.KILL),
        ("clone", (0x20000000 | 17,), seccomp.KILL),
        ("kill", (PID, 15), a),
        ("kill", (PID, 9), r),
        ("kill", (PID, 19), r),
        ("kill", (1, 0), r),
        ("kill", (-1, 15), r),
        ("kill", (0, 15), r),
        ("tgkill", (PID, PID + 1, 6), a),
        ("tgkill", (PID, PID, 9), r),
        ("tgkill", (PID + 1, PID + 1, 6), r),
        ("prlimit64", (0, 7, 0, 1), a),
        ("prlimit64", (0, 7, 0x7FFF00000000, 0), a),
        ("prlimit64", (0, 3, 0x7FFF12345678, 0), SUCCESS),
        ("prlimit64", (0, 0, 0x7FFF12345678, 0), SUCCESS),
        ("prlimit64", (0, 15, 0x700000000, 0), SUCCESS),
        ("prlimit64", (0, 3, 0, 1), a),
        ("prlimit64", (PID, 7, 0, 1), r),
        ("fcntl", (3, 3), a),
        ("fcntl", (3, 1030, 10), a),
        ("fcntl", (3, 1024, 1), r),
        ("fcntl", (3, 1031, 1 << 20), r),
        ("fcntl", (3, 8, 1), r),
        ("ioctl", (0, 0x5401), a),
        ("ioctl", (0, 0x5412), ENOTTY),
        ("prctl", (15,), a),
        ("prctl", (1,), r),
        ("prctl", (22,), r),
        ("socketpair", (1, 1), a),
        ("socketpair", (1, 1 | 0x80800), a),
        ("socketpair", (1, 2), r),
        ("socketpair", (2, 1), r),
        ("ptrace", (0,), seccomp.KILL),
        ("openat", (-100, 0x7FFF00000000, 0x80000), a),
        ("openat", (-100, 0x7FFF00000000, 0x80241), a),
        ("openat", (-100, 0x7FFF00000000, 0x80202), a),
        ("openat", (-100, 0x7FFF00000000, 0x80200), r),
        ("openat", (-100, 0x7FFF00000000, 0x203), r),
        ("openat", (-100, 0x7FFF00000000, 0x400000 | 2), r),
        ("openat", (-100, 0x7FFF00000000, 0x400000 | 0x4000 | 0x10000 | 2), r),
        ("renameat2", (-100, 0x7FFF00000000, -100, 0x7FFF00000000, 1), a),
        ("renameat2", (-100, 0x7FFF00000000, -100, 0x7FFF00000000, 4), r),
    ]


def test_arguments_decide(filter_: Filter) -> None:
    for name, arguments, answer in arguments_decide():
        assert filter_.named(name, *arguments) == answer, (name, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_two_parts_together_answer_as_the_whole(machine: str) -> None:
    whole, inherited, own = (Filter(machine, part) for part in ("whole", "inherited", "own"))
    numbers = {**seccomp.CHECKED, **seccomp.KILLED}

    def stricter(number: int, *arguments: int) -> int:
        """What the kernel does: the answer that compares as least, as signed numbers."""
        answers = [f.answer(number, *arguments) for f in (inherited, own)]
        assert seccomp.ALLOW in answers  # so that it does not matter which of two refusals comes first
        return min(answers, key=lambda answer: answer - (1 << 32) if answer >> 31 else answer)

    for number in range(seccomp.NEWEST + 1):
        assert stricter(number) == whole.answer(number), number
    for name, arguments, answer in arguments_decide():
        numbered = numbers[name][whole.column]
        assert numbered is not None
        assert stricter(numbered, *arguments) == answer, (name, arguments)
    assert inherited.answer(0, architecture=0x40000003) == seccomp.KILL
    left = {n for n in range(seccomp.NEWEST + 1) if inherited.answer(n) != whole.answer(n)}
    assert left <= {pair[whole.column] for pair in {**numbers, **seccomp.UNNAMED}.values()}
    assert 10 <= len(left) <= len(seccomp.ZYGOTE_CALLS)


def test_an_unknown_machine_has_no_filter() -> None:
    with pytest.raises(OSError, match="no system call table for s390x") as e:
        seccomp.compile_filter("s390x")
    assert e.value.errno == errno.ENOSYS
