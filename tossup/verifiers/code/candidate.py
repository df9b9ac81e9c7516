"""The candidate's side: runs in the jail, in the process that executes model code.

Two ways to be asked, both started with one JSON payload on stdin (`prelude`: trusted sources, `solution`, and what follows):

    calls()   all calls at once: `entry` and `calls`, a document of [positional, keyword] pairs. Answers line by line on what
              was stdout, one per call. No expected value ever enters this process.
    serve()   a conversation with the tests process over two pipes (`testing.py`): one request, one answer, until it hangs up.

Model code can change anything here, this file included. That is no weakness: all that leaves is plain data, which the judge
or the tests process compares outside with answers that this process does not hold.

An answer is `["ok", document, changed]`, `["raise", [class names], message]`, `["stop"]` at the end of an iteration, or
`["lost", message]` where the value may not cross. `changed` lists the arguments that the call changed in place.
"""

from __future__ import annotations

import json
import operator
import os
import sys
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tossup.verifiers.code.codec import CodecError, Json, type_name
from tossup.verifiers.code.decode import Decoder
from tossup.verifiers.code.encode import Encoder
from tossup.verifiers.code.wire import Channel, quiet_stdout, read_all, write_all

MODULE = "solution"
"""The name of the module that model code runs as, so that a block under `if __name__ == "__main__"` stays out."""
MAX_MESSAGE = 300


class AnswerError(Exception):
    """Ends the work on a request with this answer."""

    def __init__(self, *parts: Json) -> None:
        super().__init__()
        self.parts = list(parts)


def failure(error: BaseException) -> list[Json]:
    """What the tests and the judge learn of an exception: the names of its classes, and its message if that can be had."""
    try:
        message = str(error)[:MAX_MESSAGE]
    except BaseException as e:  # noqa: BLE001  (the message is model code too)
        message = f"(no message: {type_name(type(e))})"
    return ["raise", [type_name(c) for c in type(error).__mro__[:-1]], message]


class Candidate:
    """The module of the solution, and how values go in and out of it."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.module = types.ModuleType(MODULE)
        sys.modules[MODULE] = self.module
        self.handles: list[Any] = []
        self.classes: dict[type, str] = {}
        self._shared: dict[str, type] = {}
        self._numbers: dict[int, int] = {}
        self.call_back: Callable[[int, Json], Any] | None = None
        for source in payload["prelude"]:
            self._run(source, "<prelude>")
        before = {n: v for n, v in vars(self.module).items() if isinstance(v, type) and v.__module__ == MODULE}
        self._run(payload["solution"], "<solution>")
        for name, kind in before.items():
            now = getattr(self.module, name, None)
            self.classes[kind] = name
            self._shared[name] = kind
            if isinstance(now, type):  # model code may define the class once more
                self.classes[now] = name
                self._shared[name] = now

    def _run(self, source: str, name: str) -> None:
        try:
            exec(compile(source, name, "exec", dont_inherit=True), vars(self.module))
        except BaseException as e:  # noqa: BLE001  (whatever model code raises is its answer)
            raise AnswerError(*failure(e)) from None

    def entry(self, name: str, method: str) -> Any:
        """The function under test: the module's own, or that method of a new Solution (`method`: see `task.Method`).

        Raises:
            AnswerError: there is no such name.
        """
        scope = vars(self.module)
        on_class = method == "always" or (method == "if there is one" and "Solution" in scope)
        needed = "Solution" if on_class else name
        if needed not in scope:
            raise AnswerError("raise", ["NameError"], f"the program defines no {needed}")
        try:
            return getattr(scope["Solution"](), name) if on_class else scope[name]
        except BaseException as e:  # noqa: BLE001  (whatever model code raises is its answer)
            raise AnswerError(*failure(e)) from None

    def encoder(self, *, shared: bool) -> Encoder:
        """An encoder that knows this program's handles."""
        return Encoder(shared=shared, classes=self.classes, refer=self._refer if shared else None)

    def decoder(self) -> Decoder:
        """A decoder that knows them too."""
        return Decoder(classes=self._shared, resolve=self._resolve, numpy=sys.modules.get("numpy"))

    def _refer(self, value: Any) -> Json:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.handles)
            self.handles.append(value)
        return {"h": [number, type_name(type(value))]}

    def _resolve(self, tag: str, body: Json) -> Any:
        if tag == "h":
            return self.handles[body[0]]
        if tag == "e":
            return next((c for n in body if isinstance(c := getattr(self.module, n, None), type)), Exception)
        number, call_back = body[0], self.call_back
        if call_back is None:
            raise CodecError("a function of the tests, and nobody to call back")

        def function(*args: Any, **kwargs: Any) -> Any:
            return call_back(number, self.encoder(shared=True).document([args, kwargs]))

        return function


def calls() -> None:
    """Answer the calls of the payload, one line each. Returns early when the program does not load."""
    out = quiet_stdout()
    payload = json.loads(read_all(0))

    def answer(parts: list[Json]) -> None:
        write_all(out, json.dumps(parts).encode() + b"\n")

    try:
        candidate = Candidate(payload)
        function = candidate.entry(payload["entry"], payload["method"])
    except AnswerError as e:
        answer(["unloaded", *e.parts])
        return
    answer(["loaded"])
    for document in payload["calls"]:
        args, kwargs = candidate.decoder().document(document)
        try:
            result = function(*args, **kwargs)
        except BaseException as e:  # noqa: BLE001  (whatever model code raises is its answer)
            answer(failure(e))
            continue
        answer(_encoded(partial(_plain_answer, candidate, result)))
    os._exit(0)  # whatever threads and exit handlers the program left have no part in the answers


def _plain_answer(candidate: Candidate, result: Any) -> list[Json]:
    return ["ok", candidate.encoder(shared=False).document([result])]


def _encoded(write: Callable[[], list[Json]]) -> list[Json]:
    """An answer with a value in it, or the answer that says why the value cannot cross."""
    try:
        return write()
    except CodecError as e:
        return ["lost", str(e)]
    except BaseException as e:  # noqa: BLE001  (reading a value can run model code)
        return ["lost", f"{type_name(type(e))} while reading the result"]


def _next(iterator: Any) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        raise AnswerError("stop") from None


def _set_attribute(target: Any, name: str, value: Any) -> None:
    setattr(target, name, value)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, args, kwargs: function(*args, **kwargs),
    "getattr": getattr,
    "setattr": _set_attribute,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": _next,
    "len": len,
    "str": str,
    "repr": repr,
    "int": int,
    "float": float,
    "isinstance": isinstance,
    "enter": lambda manager: manager.__enter__(),
    "exit": lambda manager: manager.__exit__(None, None, None),
    "names": lambda module: [n for n in vars(module) if not n.startswith("_")],
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul")},
}
"""What the tests may ask of an object that stays here."""


def serve() -> None:
    """Answer the tests process until it hangs up. The module itself is handle 0; the first answer says whether it loaded."""
    channel = Channel.inherited()
    quiet_stdout()
    payload = json.loads(read_all(0))
    try:
        candidate = Candidate(payload)
    except AnswerError as e:
        channel.send(e.parts)
        return
    candidate._refer(candidate.module)
    candidate.call_back = lambda number, document: _call_back(channel, candidate, number, document)
    channel.send(["ok"])
    answer_requests(channel, candidate, until_return=False)


def answer_requests(channel: Channel, candidate: Candidate, *, until_return: bool) -> list[Json]:
    """Answer requests; returns at the end of the channel, or with the tests' answer to a function called back."""
    while (request := channel.receive()) is not None:
        if request[0] == "returned":
            if until_return:
                return list(request)
            continue
        channel.send(_answer(candidate, request))
    return ["raise", ["EOFError"], "the tests are over"]


def _answer(candidate: Candidate, request: Json) -> list[Json]:
    name, document = request
    decoder = candidate.decoder()
    try:
        values = decoder.document(document)
        result = OPERATIONS[name](*values)
    except AnswerError as e:
        return e.parts
    except BaseException as e:  # noqa: BLE001  (whatever model code raises is its answer)
        return failure(e)
    return _encoded(lambda: _with_changes(candidate, document, values, decoder.table, result))


def _with_changes(candidate: Candidate, document: Json, values: list[Any], table: list[Any], result: Any) -> list[Json]:
    """The answer, with what the containers among the arguments now hold where that is not what they held."""
    encoder = candidate.encoder(shared=True)
    changed = []
    if encoder.document(values) != document:
        encoder.adopt(table)
        changed = [[n, encoder.contents(n)] for n, v in enumerate(table) if v is not None]
    return ["ok", encoder.document([result]), changed]


def _call_back(channel: Channel, candidate: Candidate, number: int, document: Json) -> Any:
    """Call a function of the tests from model code."""
    channel.send(["call back", number, document])
    reply = answer_requests(channel, candidate, until_return=True)
    if reply[1] == "ok":
        return candidate.decoder().document(reply[2])[0]
    raise RuntimeError(f"a function of the tests raised {reply[2]}")
