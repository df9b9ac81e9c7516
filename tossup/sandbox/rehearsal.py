"""The zygote plays through some runs before it serves any: what they do for the first time, later runs need not do.

The interpreter adapts code and looks up methods where they are first used, and libc and ctypes bind functions. Done in a run,
that costs time in every run, and a copied page for each place that it writes to. Nothing is closed here, and nothing that a
program could see is changed.
"""

from __future__ import annotations

import copy
import gc
import marshal
import mmap
import sys

from tossup.sandbox import kernel
from tossup.sandbox.child import Jail, Job, enter, execute, load, prepare_main, stream

TIMES = 16
"""The interpreter adapts a function after it has been called eight times."""
POOL, POOL_HEAD, BYTES_HEAD, MOST_GAPS = 16384, 48, 33, 20_000
"""Of CPython's allocator. With another one nothing is gained, and little lost."""
SAMPLE = """
import sys
from collections import defaultdict
def solve(n, xs):
    count = defaultdict(int)
    for i, x in enumerate(sorted(xs)):
        count[x] += i
    return [f"{k} {v}" for k, v in count.items() if v > n]
class Point:
    def __init__(self, x):
        self.x = x
text = "3 1 2 3"
n, *xs = map(int, text.split())
try:
    answer = solve(n, xs)[Point(0).x]
except (IndexError, KeyError) as e:
    answer = str(e)
print(answer, " ".join(map(str, xs)), len(xs), max(xs), sum(xs), file=out)
for line in source:
    pass
out.flush()
"""
"""What programs do all the time. `source` and `out` lead to /dev/null, where the zygote's standard streams lead."""


def rehearse(jail: Jail) -> None:
    """Go through runs in a jail whose calls do nothing, from `enter` up to the end of the program."""
    job, stage = Job((0, -1, 0, 1, 2), (), 1.0, 1.0, 1, 1, 1, 1, False), mmap.mmap(-1, 1)
    compiled = marshal.dumps(compile(SAMPLE, "main.py", "exec", dont_inherit=True))
    for i in range(TIMES):
        prepare_main()
        enter(_open(jail), job, (0, 1, 2), ())
        program = load(SAMPLE.encode(), compiled if i % 2 else b"", -1, stage)
        assert program is not None
        vars(sys.modules["__main__"]).update(source=stream(0, "r", "in"), out=stream(1, "w", "out"))
        execute(program)
    gc.disable()  # as it was: `execute` switches it on


def _open(jail: Jail) -> Jail:
    nothing = kernel.nothing()
    play = copy.copy(jail)
    play.drop_capabilities = play.restrict_paths = play.filter_calls = nothing
    play.close_from = (nothing,) * len(jail.close_from)
    play.parent = None
    return play


def fill_gaps() -> list[object]:
    """Objects in the places between living ones, to be kept: what runs make lies together then, on a few pages of their own.

    CPython takes small blocks of one size from pools in use, and from a new pool once these are full. An object at the start
    of a pool says that they are.
    """
    kept: list[object] = []
    for size in range(16, 513, 16):
        for n in range(MOST_GAPS):
            made: object = object() if size == 16 else n + 0.5 if size == 32 else bytes(size - BYTES_HEAD)
            kept.append(made)
            if id(made) % POOL == POOL_HEAD:
                break
    return kept
