"""Tagged plain data: how values cross between the processes of the code verifier.

Used at both ends of every pipe: in the judge, in the jailed candidate (model code) and in the jailed tests process. The two
jailed ones load these files without the rest of the package, so they need the standard library only: the format and what
both directions share here, `encode.py` (value -> document), `decode.py` (document -> value), `library.py` (library types).

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

from collections.abc import Callable
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
