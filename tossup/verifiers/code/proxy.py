"""The tests' side of a conversation: proxies for what stayed in the candidate's process.

A call sends its arguments to the candidate (`candidate.py`) and gets plain data back. What is no plain data stays there, and
a `Handle` stands for it here. A handle can be called, indexed, iterated over and asked for attributes, but it never equals,
precedes or is true: model code cannot pay itself with an object that says yes to every question. Two handles may be compared
with each other, which asks model code about its own two objects.
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any, TypeVar

from tossup.verifiers.code.codec import CodecError, Json, Opaque, type_name
from tossup.verifiers.code.decode import Decoder
from tossup.verifiers.code.encode import Encoder
from tossup.verifiers.code.wire import Channel, UnsupportedError

PASSABLE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType, type)
"""What of the tests' own objects goes to model code as a function to call back."""
SHOWN = 160
MAX_BASES = 16
"""Of an exception class of model code; what lies beyond is left out."""
T = TypeVar("T")


class OpaqueError(AssertionError):
    """The tests compared an object that is no plain data."""


class CandidateError(Exception):
    """An exception of model code whose class the tests do not know."""


class Handle:
    """An object that stayed in the candidate's process."""

    __slots__ = ("_kind", "_link", "_number")

    def __init__(self, link: Link, number: int, kind: str) -> None:
        self._link, self._number, self._kind = link, number, kind

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in {"__name__", "__doc__"}:
            raise AttributeError(name)
        return self._link.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Handle.__slots__:
            object.__setattr__(self, name, value)
        else:
            self._link.ask("setattr", self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self._link.call(self, args, kwargs)

    def __iter__(self) -> Any:
        return self._link.ask("iter", self)

    def __next__(self) -> Any:
        return self._link.ask("next", self)

    def __len__(self) -> int:
        return _exactly(int, self._link.ask("len", self))

    def __getitem__(self, key: Any) -> Any:
        return self._link.ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._link.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._link.ask("delitem", self, key)

    def __contains__(self, wanted: Any) -> bool:
        return any(wanted is item or wanted == item for item in self)

    def __enter__(self) -> Any:
        return self._link.ask("enter", self)

    def __exit__(self, *error: object) -> None:
        self._link.ask("exit", self)

    def __str__(self) -> str:
        return _exactly(str, self._link.ask("str", self))

    def __repr__(self) -> str:
        return _exactly(str, self._link.ask("repr", self))

    def __int__(self) -> int:
        return _exactly(int, self._link.ask("int", self))

    def __float__(self) -> float:
        return _exactly(float, self._link.ask("float", self))

    def __instancecheck__(self, instance: Any) -> bool:
        return type(instance) is Handle and _exactly(bool, self._link.ask("isinstance", instance, self))

    def __hash__(self) -> int:
        return hash((Handle, self._number))

    def __bool__(self) -> bool:
        raise OpaqueError(f"an object of type {self._kind} is neither true nor false here")

    def _compare(self, operation: str, other: Any) -> bool:
        if type(other) is not Handle:
            raise OpaqueError(f"an object of type {self._kind} was compared; only plain data can be")
        return _exactly(bool, self._link.ask(operation, self, other))

    def _combine(self, operation: str, other: Any) -> Any:
        if type(other) is not Handle:
            raise OpaqueError(f"an object of type {self._kind} stood in an expression; only plain data can")
        return self._link.ask(operation, self, other)

    def __eq__(self, other: object) -> bool:
        return self._compare("eq", other)

    def __ne__(self, other: object) -> bool:
        return self._compare("ne", other)

    def __lt__(self, other: Any) -> bool:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> bool:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> bool:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> bool:
        return self._compare("ge", other)

    def __add__(self, other: Any) -> Any:
        return self._combine("add", other)

    def __sub__(self, other: Any) -> Any:
        return self._combine("sub", other)

    def __mul__(self, other: Any) -> Any:
        return self._combine("mul", other)


def _exactly(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise OpaqueError(f"expected a {kind.__name__} of model code, got a {type(value).__name__}")
    return value


class Missing:
    """Stands for a name that the program does not define, so that a built-in of that name cannot take its place."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        raise NameError(f"the program defines no {self._name}")

    def __getattr__(self, name: str) -> Any:
        raise NameError(f"the program defines no {self._name}")


class Link:
    """The conversation with the candidate's process."""

    def __init__(self, channel: Channel, *, values_only: bool = False) -> None:
        self.calls = 0
        self._values_only = values_only
        self.last: Any = None
        self.classes: dict[type, str] = {}
        self._channel = channel
        self._functions: list[Any] = []
        self._exceptions: dict[str, type[BaseException]] = {}

    def wait_until_loaded(self) -> None:
        """Wait for the candidate's first message. Raises what loading the program raised."""
        self._value(self._receive(), Encoder())

    def module(self) -> Handle:
        """The program itself; its attributes are the names that it defines."""
        return Handle(self, 0, "module")

    def call(self, function: Handle, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an object of the candidate. Changes that it makes to the arguments are made here too."""
        self.calls += 1
        self.last = None
        self.last = self.ask("call", function, args, kwargs)
        return self.last

    def ask(self, operation: str, *values: Any) -> Any:
        """Have an operation done on objects of the candidate; its result, or its exception."""
        encoder = Encoder(shared=True, classes=self.classes, refer=self._refer)
        document = encoder.document(values)
        if self._values_only:  # changes go to copies, so that a result which is an argument is read as it is now
            copies = self._decoder()
            copies.document(document)
            encoder.table = copies.table
        self._send([operation, document])
        while (answer := self._receive())[0] == "call back":
            self._run_function(answer)
        if answer[0] == "stop" and operation == "next":
            raise StopIteration
        return self._value(answer, encoder)

    def exception_class(self, names: list[str]) -> type[BaseException]:
        """The class of the tests' side for an exception class of model code, given the names of it and of its bases."""
        name = str(names[0])
        if name in self._exceptions:
            return self._exceptions[name]
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, BaseException):
            ends_loops = issubclass(known, (StopIteration, StopAsyncIteration, GeneratorExit))
            return CandidateError if ends_loops else known
        base = self.exception_class(names[1:]) if len(names) > 1 else Exception
        made = type(name, (base,), {}) if issubclass(base, Exception) else base
        self._exceptions[name] = made
        return made

    def _send(self, message: list[Json]) -> None:
        try:
            self._channel.send(message)
        except OSError:
            raise CandidateError("the program ended") from None

    def _receive(self) -> list[Json]:
        message = self._channel.receive()
        if message is None:
            raise CandidateError("the program ended, or broke off the conversation")
        assert isinstance(message, list)
        return message

    def _value(self, answer: list[Json], sent: Encoder) -> Any:
        kind, *parts = answer
        if kind == "ok" and not parts:
            return None
        if kind == "ok" and len(parts) == 2:
            decoder = self._decoder()
            decoder.table = sent.table
            for number, contents in parts[1]:
                decoder.refill(number, contents)
            return decoder.document(parts[0])[0]
        if kind == "raise" and len(parts) == 2 and parts[0]:
            raise self._exception(parts[0], str(parts[1]))
        raise CodecError(f"the result cannot cross: {parts[0] if parts else 'no answer'!s:.{SHOWN}}")

    def _exception(self, names: list[str], message: str) -> BaseException:
        kind = self.exception_class(names[:MAX_BASES])
        try:
            error = kind(message if kind is not CandidateError else f"{names[0]}: {message}")
        except TypeError:  # a class that wants other arguments
            error = CandidateError(f"{names[0]}: {message}")
        error.crossed = True  # type: ignore[attr-defined]  # tells it from one that the tests' own code raises
        return error

    def _decoder(self) -> Decoder:
        names = {n: c for c, n in self.classes.items()}
        return Decoder(classes=names, resolve=self._resolve, numpy=sys.modules.get("numpy"))

    def _refer(self, value: Any) -> Json:
        if type(value) is Handle:
            return {"h": [value._number, value._kind]}
        if isinstance(value, PASSABLE):
            self._functions.append(value)
            return {"k": [len(self._functions) - 1, type_name(type(value))]}
        if type(value) is Opaque:
            raise OpaqueError(f"a result of type {value.kind} cannot be passed on")
        raise UnsupportedError(
            f"the tests pass an object of type {type_name(type(value))}, which cannot leave their process"
        )

    def _resolve(self, tag: str, body: Json) -> Any:
        if tag == "h":
            number, kind = body
            return Handle(self, int(number), str(kind)[:80])
        if tag == "k":
            return self._functions[body[0]]
        return self.exception_class(body)

    def _run_function(self, request: list[Json]) -> None:
        _, number, document = request
        function = self._functions[number]
        encoder = Encoder(shared=True, classes=self.classes, refer=self._refer)
        decoder = self._decoder()
        args, kwargs = decoder.document(document)
        try:
            result = function(*args, **kwargs)
        except Exception as e:  # noqa: BLE001  (goes back into model code, which called)
            self._send(["returned", "raise", f"{type(e).__name__}: {e}"[:SHOWN]])
        else:
            self._send(["returned", "ok", encoder.document([result])])
