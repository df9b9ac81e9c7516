"""Writing values as documents: see `codec` for the format. Standard library only, as the jailed processes load it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tossup.verifiers.code.codec import MAX_DEPTH, MUTABLE, PLAIN, SMALL, CodecError, Json, type_name


class Encoder:
    """Writes documents that share one numbering of their mutable containers.

    `shared`: keep aliases and number containers (else every value is written as a tree). `classes`: class -> name, for
    objects that travel by value. `refer`: gives the tagged form of an object that has to stay, or raises.
    """

    def __init__(
        self,
        *,
        shared: bool = False,
        classes: Mapping[type, str] | None = None,
        refer: Callable[[Any], Json] | None = None,
    ) -> None:
        self.shared = shared
        self.classes = classes or {}
        self.refer = refer or (lambda v: {"h": [0, type_name(type(v))]})
        self.table: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._pending: list[Any] = []

    def document(self, values: Iterable[Any]) -> Json:
        """The document whose roots are these values."""
        return self._with_fields([self.put(v, 0) for v in values])

    def adopt(self, table: list[Any]) -> None:
        """Number these containers as the other end does, and forget all other numbers."""
        self.table = list(table)
        self._numbers = {id(v): n for n, v in enumerate(table)}

    def contents(self, number: int) -> Json:
        """What the container of this number holds now, written out although its number is known to the reader."""
        value = self.table[number]
        self.table.append(None)  # the reader numbers what it reads the contents into
        if type(value) in self.classes:
            return ["fields", self._with_fields([[k, self.put(v, 0)] for k, v in vars(value).items()])]
        return ["value", self._with_fields([self._container(value, type(value), 0)])]

    def put(self, value: Any, depth: int) -> Json:
        """The tagged form of one value.

        Raises:
            CodecError: it is nested too deeply.
        """
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is int:
            return value if -SMALL < value < SMALL else {"i": format(value, "x")}
        if kind is float:
            return value if math.isfinite(value) else {"f": repr(value)}
        if depth > MAX_DEPTH:
            raise CodecError(f"nested deeper than {MAX_DEPTH} levels")
        if self.shared and (kind in MUTABLE or kind in self.classes):
            number = self._numbers.get(id(value))
            if number is not None:
                return {"r": number}
            self._numbers[id(value)] = len(self.table)
            self.table.append(value)
        return self._container(value, kind, depth)

    def each(self, values: Iterable[Any], depth: int) -> list[Json]:
        """The tagged forms of the elements of a container."""
        return [self.put(v, depth) for v in values]

    def _with_fields(self, roots: list[Json]) -> Json:
        document: list[Json] = [roots]
        pending, self._pending = self._pending, []
        while pending:
            document += [[[k, self.put(v, 0)] for k, v in vars(value).items()] for value in pending]
            pending, self._pending = self._pending, []
        return document

    def _container(self, value: Any, kind: type, depth: int) -> Json:
        write = WRITERS.get(kind)
        if write is not None:
            return write(self, value, depth + 1)
        if kind in self.classes:
            self._pending.append(value)
            return {"o": self.classes[kind]}
        for special in SPECIAL:
            form = special(self, value, kind, depth + 1)
            if form is not None:
                return form
        for base, plain in _BASES.items():
            if base in kind.__mro__ and kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__:
                return self.put(plain(value), depth + 1)
        return self.refer(value)


def _write_list(to: Encoder, v: list[Any], depth: int) -> Json:
    kinds = set(map(type, v))
    if kinds <= PLAIN or (kinds == {int} and min(v) > -SMALL and max(v) < SMALL):
        return v[:]
    if kinds == {float} and all(map(math.isfinite, v)):
        return v[:]
    return to.each(v, depth)


def _exception_class(to: Encoder, value: Any, kind: Any, depth: int) -> Json | None:
    if kind is type and issubclass(value, BaseException):
        return {"e": [type_name(c) for c in value.__mro__[:-1]]}
    return None


SPECIAL: list[Callable[[Encoder, Any, type, int], Json | None]] = [_exception_class]
"""Forms for families of types that no table of exact types can list."""

WRITERS: dict[type, Callable[[Encoder, Any, int], Json]] = {
    list: _write_list,
    tuple: lambda to, v, depth: {"t": to.each(v, depth)},
    set: lambda to, v, depth: {"s": to.each(v, depth)},
    frozenset: lambda to, v, depth: {"z": to.each(v, depth)},
    dict: lambda to, v, depth: {"d": [[to.put(k, depth), to.put(x, depth)] for k, x in v.items()]},
    bytes: lambda to, v, depth: {"b": v.hex()},
    bytearray: lambda to, v, depth: {"a": v.hex()},
    complex: lambda to, v, depth: {"c": [repr(v.real), repr(v.imag)]},
}

_BASES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda v: bytes(memoryview(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    list: lambda v: list(list.__iter__(v)),
    dict: lambda v: dict(dict.items(v)),
    set: lambda v: set(set.__iter__(v)),
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
}
