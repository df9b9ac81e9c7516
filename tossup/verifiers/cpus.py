"""How many processes a machine, or the container that it looks like, can run at once."""

from __future__ import annotations

import os
from pathlib import Path

from tossup.records import TossupError

SIZE_VARIABLE = "TOSSUP_WORKERS"


def cpu_count() -> int:
    """The CPUs that this process may use: its affinity, and the container's quota where there is one."""
    cpus = len(os.sched_getaffinity(0))
    quota_file = Path("/sys/fs/cgroup/cpu.max")
    if quota_file.exists():
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cpus = min(cpus, max(1, round(int(quota) / int(period))))
    return cpus


def default_size() -> int:
    """How many workers a pool may have: `TOSSUP_WORKERS`, or one for each CPU.

    Raises:
        TossupError: the variable is set to something that is no positive whole number.
    """
    text = os.environ.get(SIZE_VARIABLE, "")
    if not text:
        return cpu_count()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise TossupError(f"{SIZE_VARIABLE} is {text!r}: set it to a whole number of at least 1, or unset it")
    return int(text)
