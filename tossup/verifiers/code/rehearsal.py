"""Both ends of a judgement play through some samples when a zygote loads these files, before any program is near.

The interpreter adapts code and looks up methods where they are first used; done in a run, that costs time and copied pages in
every run (see `tossup.sandbox.rehearsal`). Nothing is left of it: no module, no handle, no open descriptor.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tossup.verifiers.code.candidate import MODULE, Candidate, _answer, _encoded, _plain_answer
from tossup.verifiers.code.proxy import Link
from tossup.verifiers.code.testing import _judge
from tossup.verifiers.code.wire import Channel

TIMES = 10
"""The interpreter adapts a function after it has been called eight times."""
SOLUTION = """
from typing import List, Optional
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b
    def total(self):
        return self.a + self.b
def add(a, b, *rest, key=None):
    if isinstance(a, list):
        a.append(b)
    return a if key else a + b
def kinds(xs: List[int]) -> Optional[dict]:
    if not xs:
        raise ValueError("nothing given")
    return {"s": [str(x) for x in sorted(xs)], "t": tuple(xs), "f": sum(xs) / 2, "n": None, "e": {1, 2}}
"""
TESTS = """
def check(candidate, kinds, Pair):
    for a, b in ((1, 2), (0.5, 2), ("a", "b"), ([1], [2])):
        assert candidate(a, b) == a + b
    xs = [1]
    assert candidate(xs, 2, key=True) is xs and xs == [1, 2]
    assert kinds([3, 1, 2])["t"] == (3, 1, 2) and kinds([1])["f"] == 0.5
    assert Pair(1, 2).total() == 3
    try:
        kinds([])
    except ValueError as e:
        assert "nothing" in str(e)
check(add, kinds, Pair)
"""
ARGUMENTS: tuple[tuple[Any, ...], ...] = ((1, 2), (1.5, 2), ("a", "b"), ([1], [[2], {"k": (1, None)}]))


class _SelfTalk(Channel):
    """The tests' end of a conversation whose other end answers in the same process."""

    def __init__(self, candidate: Candidate) -> None:
        (read, self._there), (self._here, write) = os.pipe(), os.pipe()
        super().__init__(read, write)
        self._other = Channel(self._here, self._there)
        self._candidate = candidate

    def receive(self) -> Any:
        request = self._other.receive()
        self._other.send(_answer(self._candidate, request))
        return super().receive()

    def close(self) -> None:
        """Close both pipes."""
        self._in.close()
        self._other._in.close()
        os.close(self._out)
        os.close(self._there)


class _Loaded(Link):
    def wait_until_loaded(self) -> None:
        """The program has been loaded before."""


def rehearse() -> None:
    """Go through calls and conversations."""
    for _ in range(TIMES):
        _calls()
        _conversation()
    for name in (MODULE, "tests", "pytest"):
        del sys.modules[name]


def _calls() -> None:
    candidate = Candidate(json.loads(json.dumps({"prelude": [], "solution": SOLUTION})))
    function = candidate.entry("add", "never")
    for args in ARGUMENTS:
        document = json.loads(json.dumps(candidate.encoder(shared=False).document([args, {}])))
        positional, keyword = candidate.decoder().document(document)
        result = function(*positional, **keyword)
        json.dumps(_encoded(lambda: _plain_answer(candidate, result))).encode()  # noqa: B023  (called at once)


def _conversation() -> None:
    candidate = Candidate({"prelude": [], "solution": SOLUTION})
    candidate._refer(sys.modules[MODULE])
    payload = {
        "prelude": [],
        "helpers": [],
        "names": ["add", "kinds", "Pair"],
        "code": TESTS,
        "alias": "",
        "mode": "script",
    }
    channel = _SelfTalk(candidate)
    ruling = _judge(_Loaded(channel), payload, lambda ruling, reason: None)
    channel.close()
    assert ruling[0] == "pass", ruling
