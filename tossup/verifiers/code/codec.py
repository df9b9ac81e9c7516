"""Tagged plain data: how values cross between the processes of the code verifier.

Used at both ends of every pipe: in the judge, in the jailed candidate (model code) and in the jailed tests process. The two
jailed ones load this file without the rest of the package, so it needs the standard library only.

A document is `[roots, fields of object 0, fields of object 1, ...]`, ready for JSON. Inside it None, bool, str, small int
and finite float stand for themselves, an array is a Python list, and everything else is an object with one key, its tag:

    t tuple    s set        z frozenset   d dict as pairs     b bytes (hex)     a bytearray   i big int (hex)
    f inf, nan c complex    x a library type: [name, payload] (`library.py`)    n y a NumPy number, array
    r the n-th mutable container of this document again (keeps aliases and cycles)
    o an instance of a class that both ends defined by the same trusted code    e an exception class, by its bases
    h an object that stays where it is: a handle [number, type name]            k a function of the tests, called back

Nothing is pickled, and no method that model code could have overridden is called: an instance of a subclass travels as its
base only when it inherits the base's own comparison, and is read through the base's methods. Decoding is bounded: in depth,
in size by whoever reads the message, and against sets whose elements were chosen to collide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 120
"""Nesting of plain containers. JSON's own recursion fails only at several times this."""
MAX_COLLISIONS = 64
"""Elements of one set (keys of one dict) that may share a hash value."""
SMALL = 1 << 62
"""Integers below this in absolute value are written as JSON numbers."""
PLAIN: frozenset[type] = frozenset({str, bool, type(None)})
ATOMS: frozenset[type] = PLAIN | {int, float}

Json = Any
"""What `json.loads` returns."""


class CodecError(ValueError):
    """The value or the document is outside what may cross: too deep, malformed, or of a kind that has to stay."""


class Opaque:
    """Stands in the judge for a result that is no plain data. It equals nothing."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<an object of type {self.kind}>"


def type_name(kind: type) -> str:
    """The name of a type for a message, whatever its metaclass says, cut to a sane length."""
    return str(type.__dict__["__name__"].__get__(kind))[:80]


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


class Decoder:
    """Reads documents that share one numbering of their mutable containers.

    `classes`: name -> class for objects by value. `resolve`: turns tag and body of a handle, a function of the tests or an
    exception class into a value. `tree`: refuse aliases, so that walking, hashing or printing the value takes time in
    proportion to its document. `numpy`: the module, where NumPy values shall be real ones; without it a NumPy number reads
    as the plain number that it equals and an array as an `Opaque`.
    """

    def __init__(
        self,
        *,
        classes: Mapping[str, type] | None = None,
        resolve: Callable[[str, Json], Any] | None = None,
        tree: bool = False,
        numpy: Any = None,
    ) -> None:
        self.tree = tree
        self.numpy = numpy
        self.classes = classes or {}
        self.resolve = resolve or (lambda tag, body: Opaque(str(body[-1])[:80]))
        self.table: list[Any] = []
        self._pending: list[Any] = []

    def document(self, document: Json) -> list[Any]:
        """The roots of a document.

        Raises:
            CodecError: it is malformed, too deep, or holds something that may not cross.
        """
        try:
            roots = [self.get(x, 0) for x in document[0]]
            self._fill_objects(document)
        except CodecError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as e:
            raise CodecError(f"malformed document: {type(e).__name__}: {e}"[:200]) from None
        return roots

    def refill(self, number: int, contents: Json) -> None:
        """Give the container of this number the contents that `Encoder.contents` wrote.

        Raises:
            CodecError: as for `document`, or the container would have to change its type.
        """
        try:
            form, document = contents
            target = self.table[number]
            if form == "fields":
                self.table.append(None)
                vars(target).clear()
                self._set_fields(target, document[0])
                self._fill_objects(document)
                return
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as e:
            raise CodecError(f"malformed contents: {type(e).__name__}: {e}"[:200]) from None
        value: Any = self.document(document)[0]
        if type(value) is not type(target):
            raise CodecError("malformed contents: a container changed its type")
        MUTABLE[type(target)](target, value)

    def get(self, x: Json, depth: int) -> Any:
        """The value of one tagged form."""
        if type(x) in ATOMS:
            return x
        if depth > MAX_DEPTH:
            raise CodecError(f"nested deeper than {MAX_DEPTH} levels")
        if type(x) is list:
            values: list[Any] = []
            self.table.append(values)
            values.extend(x if ATOMS.issuperset(map(type, x)) else [self.get(v, depth + 1) for v in x])
            return values
        ((tag, body),) = x.items()
        return READERS[tag](self, body, depth + 1)

    def each(self, xs: Json, depth: int) -> list[Any]:
        """The values of the elements of a container."""
        if type(xs) is not list:
            raise CodecError("malformed document: expected an array")
        return [self.get(x, depth) for x in xs]

    def pairs(self, xs: Json, depth: int) -> list[tuple[Any, Any]]:
        """The pairs of a mapping, their keys checked."""
        pairs = [(self.get(k, depth), self.get(v, depth)) for k, v in xs]
        checked_keys([k for k, _ in pairs])
        return pairs

    def _fill_objects(self, document: Json) -> None:
        filled = 0
        for fields in document[1:]:
            self._set_fields(self._pending[filled], fields)
            filled += 1
        if filled != len(self._pending):
            raise CodecError("malformed document: an object without its fields")
        self._pending.clear()

    def _set_fields(self, target: Any, fields: Json) -> None:
        """Data only: a field may not hide a method of the trusted class."""
        for name, x in fields:
            if callable(getattr(type(target), name, None)):
                raise CodecError(f"a field {name[:80]} over the method of that name")
            vars(target)[name] = self.get(x, 0)

    def _instance(self, name: str) -> Any:
        value: Any = object.__new__(self.classes[name])
        self.table.append(value)
        self._pending.append(value)
        return value

    def _again(self, number: Json) -> Any:
        if self.tree or type(number) is not int or not 0 <= number < len(self.table) or self.table[number] is None:
            raise CodecError("malformed document: a reference to nothing")
        return self.table[number]

    def fresh(self, container: Any, fill: Callable[[], Any]) -> Any:
        """Number a new mutable container before its elements, then fill it."""
        self.table.append(container)
        MUTABLE[type(container)](container, fill())
        return container


def checked_keys(keys: list[Any]) -> list[Any]:
    """The same keys, after a look at their hash values: many equal ones make building a set quadratic.

    Raises:
        CodecError: more than `MAX_COLLISIONS` keys share a hash value.
    """
    hashes = sorted(map(hash, keys))
    if any(a == b for a, b in zip(hashes, hashes[MAX_COLLISIONS:], strict=False)):
        raise CodecError("many elements of one set share a hash value")
    return keys


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


def replace_items(target: Any, value: Any) -> None:
    """Give a sequence new elements, in place."""
    target[:] = value


def replace_all(target: Any, value: Any) -> None:
    """Give a set, mapping or deque new elements, in place."""
    target.clear()
    (target.extend if hasattr(target, "extend") else target.update)(value)


MUTABLE: dict[type, Callable[[Any, Any], None]] = {
    list: replace_items,
    bytearray: replace_items,
    dict: replace_all,
    set: replace_all,
}
"""The containers that are numbered, each with how to replace its contents."""

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

READERS: dict[str, Callable[[Decoder, Json, int], Any]] = {
    "t": lambda of, body, depth: tuple(of.each(body, depth)),
    "s": lambda of, body, depth: of.fresh(set(), lambda: checked_keys(of.each(body, depth))),
    "z": lambda of, body, depth: frozenset(checked_keys(of.each(body, depth))),
    "d": lambda of, body, depth: of.fresh({}, lambda: of.pairs(body, depth)),
    "b": lambda of, body, depth: bytes.fromhex(body),
    "a": lambda of, body, depth: of.fresh(bytearray(), lambda: bytes.fromhex(body)),
    "i": lambda of, body, depth: int(body, 16),
    "f": lambda of, body, depth: float(body),
    "c": lambda of, body, depth: complex(*map(float, body)),
    "r": lambda of, body, depth: of._again(body),
    "o": lambda of, body, depth: of._instance(body),
    "h": lambda of, body, depth: of.resolve("h", body),
    "k": lambda of, body, depth: of.resolve("k", body),
    "e": lambda of, body, depth: of.resolve("e", body),
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


@dataclass(frozen=True, slots=True)
class LibraryType:
    """A library type that crosses: `write` gives plain data and `read` builds the value from it."""

    kind: type
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    refill: Callable[[Any, Any], None] | None = None
    """How to replace its contents; None for an immutable type."""


LIBRARY: dict[str, LibraryType] = {}
"""The library types by the name that stands in their tag."""


def register(name: str, entry: LibraryType) -> None:
    """Let a library type cross under this name."""
    LIBRARY[name] = entry
    WRITERS[entry.kind] = lambda to, v, depth: {"x": [name, to.put(entry.write(v), depth)]}
    if entry.refill is not None:
        MUTABLE[entry.kind] = entry.refill


def _read_library(of: Decoder, body: Json, depth: int) -> Any:
    name, payload = body
    entry = LIBRARY[name]
    number = len(of.table)
    if entry.refill is not None:
        of.table.append(None)
    value = entry.read(of.get(payload, depth))
    if entry.refill is not None:
        of.table[number] = value
    return value


READERS["x"] = _read_library
