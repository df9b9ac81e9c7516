"""Attacks of many kinds on every backend. None may work, and none may end as a failure of ours."""

from __future__ import annotations

import platform

import pytest

from tests.sandbox.breakouts import ALWAYS_ENDS, BREAKOUTS, FORBIDDEN, HEAD, REFUSED
from tests.sandbox.conftest import skip_unless_offered
from tests.sandbox.outsiders import BUSY, COMPILED, PROBES
from tossup.sandbox import Limits, Outcome, Sandbox, backends

COLUMN = {"x86_64": 1, "aarch64": 2}[platform.machine()]
EPERM, ENOSYS = 1, 38


@pytest.mark.parametrize("backend", backends.ORDER)
def test_the_built_in_attacks_are_stopped(backend: str) -> None:
    skip_unless_offered(backend)
    report = backends.report(backend)
    assert report.got_out == ()
    assert report.works
    assert report.attempts is not None
    assert all(report.attempts.values())


def test_refused_calls_fail(sandbox: Sandbox) -> None:
    numbers = [int(row[COLUMN]) for row in REFUSED if row[COLUMN] != "-"]
    body = f"for n in {numbers}: print(n, call(n, 0, 0, 0, 0, 0, 0), ctypes.get_errno())"
    result = sandbox.run(HEAD + body)
    assert result.outcome is Outcome.FINISHED, result
    answers = [tuple(map(int, line.split())) for line in result.stdout.splitlines()]
    assert [n for n, _, _ in answers] == numbers
    assert [(n, code) for n, value, code in answers if value != -1 or code not in (EPERM, ENOSYS)] == []


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="written with x86_64 call numbers")
def test_forbidden_calls_end_the_program(sandbox: Sandbox, name: str) -> None:
    result = sandbox.run(HEAD + FORBIDDEN[name] + "\nout()")
    assert (result.outcome, result.stdout) == (Outcome.POLICY, b""), result


@pytest.mark.parametrize("name", [*BREAKOUTS, *PROBES])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="written with x86_64 call numbers")
def test_nothing_gets_out(sandbox: Sandbox, name: str) -> None:
    result = sandbox.run(HEAD + {**BREAKOUTS, **PROBES}[name])
    assert b"OUT" not in result.stdout
    assert result.outcome in (Outcome.FINISHED, Outcome.ERROR), result
    assert b"SyntaxError" not in result.stderr
    assert b"NameError" not in result.stderr


@pytest.mark.parametrize("name", ALWAYS_ENDS)
def test_an_end_is_the_programs_own(sandbox: Sandbox, name: str) -> None:
    result = sandbox.run(
        HEAD + ALWAYS_ENDS[name], limits=Limits(cpu_seconds=0.5, wall_seconds=4, memory_bytes=256 << 20)
    )
    assert result.outcome is not Outcome.INFRA, result
    assert sandbox.run("print(6 * 7)").stdout == b"42\n"


@pytest.mark.parametrize("name", BUSY)
def test_work_without_end_is_the_programs_own(sandbox: Sandbox, name: str) -> None:
    limits = Limits(cpu_seconds=0.3, wall_seconds=1.5, memory_bytes=256 << 20)
    result = sandbox.run(HEAD + BUSY[name], limits=limits)
    assert result.outcome is not Outcome.INFRA, result
    assert b"SyntaxError" not in result.stderr
    assert sandbox.run("print(6 * 7)").stdout == b"42\n"


@pytest.mark.parametrize("name", COMPILED)
def test_compiling_harms_nobody_else(sandbox: Sandbox, name: str) -> None:
    worker = sandbox._slots[0].candidate
    first, second = sandbox.run_many(COMPILED[name], [b"", b""], limits=Limits(cpu_seconds=2, memory_bytes=256 << 20))
    assert first.outcome is not Outcome.INFRA, first
    assert (second.outcome, second.stdout, second.exit_code) == (first.outcome, first.stdout, first.exit_code)
    assert sandbox.run("print(6 * 7)").stdout == b"42\n"
    assert sandbox._slots[0].candidate is worker or worker is None


def test_no_run_finds_the_program_input_or_output_of_an_earlier_one(sandbox: Sandbox) -> None:
    """A later candidate must not find the tests of an earlier run, or another rollout's answer, in its memory."""
    half = "xyzzy"
    for _ in range(3):
        secret = half + "plugh"
        first = sandbox.run(f"answer = '{secret}'; print(answer); print(input())", f"{secret}-input\n".encode())
        assert first.stdout.decode() == f"{secret}\n{secret}-input\n"
    search = f"""
import ctypes
def holds(data):
    # the two halves side by side are nowhere in this program
    at = data.find(b'{half}')
    while at >= 0:
        if data[at + 5 : at + 10][::-1] == b'hgulp':
            return True
        at = data.find(b'{half}', at + 1)
    return False
def regions():
    # /proc is not there: walk outward from objects of every size, as far as memory is mapped
    import gc, sys
    seen = set()
    for size in (16, 64, 256, 512, 1024, 4096, 65536):
        for _ in range(200):
            seen.add(id(bytearray(size)) & ~0xfffff)
    seen |= {{id(o) & ~0xfffff for o in gc.get_objects()}}
    return seen
import os
r, w = os.pipe()
def readable(page):
    # write(2) reports EFAULT where a page is not mapped, instead of crashing
    libc = ctypes.CDLL(None, use_errno=True)
    n = libc.write(w, ctypes.c_void_p(page), ctypes.c_size_t(4096))
    return os.read(r, 4096) if n == 4096 else None
found = pages = 0
for start in regions():
    for page in range(start, start + (1 << 20), 4096):
        data = readable(page)
        pages += data is not None
        found += data is not None and holds(data)
print(found, pages)
"""
    result = sandbox.run(search, limits=Limits(cpu_seconds=20))
    found, pages = map(int, result.stdout.split())
    assert pages > 500, "the search must have looked somewhere"
    assert found == 0
