"""Reading documents as values: see `codec` for the format. Standard library only, as the jailed processes load it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tossup.verifiers.code.codec import ATOMS, LIBRARY, MAX_COLLISIONS, MAX_DEPTH, MUTABLE, CodecError, Json, Opaque


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
    "x": _read_library,
}
