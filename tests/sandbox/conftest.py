"""Sandboxes shared by the tests of a session, one per backend that works on this machine."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from tossup.sandbox import Limits, Sandbox, backends

LIMITS = Limits(cpu_seconds=1.0, wall_seconds=20.0, memory_bytes=256 << 20)


def skip_unless_offered(backend: str) -> None:
    """Skip where the kernel or container forbids a backend; any other reason for its failure is a bug of ours."""
    report = backends.report(backend)
    if report.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOSPC, errno.EOPNOTSUPP):
        pytest.skip(f"{backend}: {report.error}")
    assert report.works, report


@pytest.fixture(scope="session", params=backends.ORDER)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Each backend in turn; one that this machine does not offer is skipped, with what it lacks."""
    skip_unless_offered(request.param)
    with Sandbox(request.param, workers=1, limits=LIMITS) as box:
        yield box


@pytest.fixture(scope="session")
def strongest() -> Iterator[Sandbox]:
    """The backend that `auto` chooses."""
    with Sandbox(workers=2, limits=LIMITS) as box:
        yield box
