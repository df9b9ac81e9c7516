"""The library types that cross as values, each rebuilt as the genuine type from plain, checked data.

Loaded in the jailed processes beside `codec.py`; the standard library only. NumPy is never imported here: where model code
returns NumPy values its module is loaded already, and who decodes passes the module or does without (see `Decoder`).
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import sys
from typing import Any

from tossup.verifiers.code.codec import LIBRARY, MUTABLE, CodecError, Json, LibraryType, Opaque, replace_all
from tossup.verifiers.code.decode import READERS, Decoder, checked_keys
from tossup.verifiers.code.encode import SPECIAL, WRITERS, Encoder

MAX_EXPONENT = 20_000
"""Decimal exponents beyond this may not cross: comparing such a number with a fraction would write it out."""
MAX_FRACTION_BITS = 1 << 17
"""Of numerator and denominator: reducing a fraction takes time in the square of them."""
TYPES: dict[str, type] = {
    t.__name__: t
    for t in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, object, range, type)
}
"""The types that cross by name."""
NUMPY_KINDS = "biufcSU"
"""Kinds of dtype whose values are plain data."""
LONG_NUMBERS = "gG"
"""Long doubles, real and complex: of these kinds, but no Python number, so that they could not go back."""


def _decimal(text: str) -> decimal.Decimal:
    value = decimal.Decimal(text)
    if value.is_finite() and value and abs(value.adjusted()) > MAX_EXPONENT:
        raise CodecError("a decimal number with a huge exponent")
    return value


def _defaultdict(payload: list[Any]) -> collections.defaultdict[Any, Any]:
    factory, content = payload
    return collections.defaultdict(TYPES.get(factory), content)


def _counter(pairs: list[Any]) -> collections.Counter[Any]:
    counter: collections.Counter[Any] = collections.Counter()
    checked_keys([k for k, _ in pairs])
    dict.update(counter, pairs)
    return counter


def _refill_counter(target: Any, value: Any) -> None:
    target.clear()
    dict.update(target, value)


def _ordered(pairs: list[Any]) -> collections.OrderedDict[Any, Any]:
    checked_keys([k for k, _ in pairs])
    return collections.OrderedDict(pairs)


def _view(items: list[Any]) -> dict[Any, None]:
    return dict.fromkeys(checked_keys(items))


def _date(parts: list[int]) -> datetime.date:
    return datetime.date(*parts)


def _datetime(parts: list[int]) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]  # seven ints; a naive time, as they cross


def _date_parts(d: datetime.date) -> list[int]:
    return [d.year, d.month, d.day]


def _write_defaultdict(v: collections.defaultdict[Any, Any]) -> list[Any]:
    factory: Any = v.default_factory
    return [getattr(factory, "__name__", None) if isinstance(factory, type) else None, dict(v)]


def _builtin_type(to: Encoder, value: Any, kind: type, depth: int) -> Json | None:
    """A built-in type, such as the `int` that a test passes as a converter."""
    if isinstance(value, type) and TYPES.get(value.__name__) is value:
        return {"x": ["type", value.__name__]}
    return None


def _fraction(parts: list[int]) -> fractions.Fraction:
    numerator, denominator = parts
    if max(numerator.bit_length(), denominator.bit_length()) > MAX_FRACTION_BITS:
        raise CodecError("a fraction of huge numbers")
    return fractions.Fraction(numerator, denominator)


def _unused(value: Any) -> Any:
    raise CodecError("written by a special form")


def register(name: str, entry: LibraryType) -> None:
    """Let a library type cross under this name."""
    LIBRARY[name] = entry
    WRITERS[entry.kind] = lambda to, v, depth: {"x": [name, to.put(entry.write(v), depth)]}
    if entry.refill is not None:
        MUTABLE[entry.kind] = entry.refill


def install() -> None:
    """Add these types to the tables of `codec`."""
    deque: type = collections.deque
    register("deque", LibraryType(deque, lambda v: [list(v), v.maxlen], lambda p: deque(p[0], p[1]), replace_all))
    register("counter", LibraryType(collections.Counter, lambda v: list(v.items()), _counter, _refill_counter))
    register("ordered", LibraryType(collections.OrderedDict, lambda v: list(v.items()), _ordered, replace_all))
    register("defaultdict", LibraryType(collections.defaultdict, _write_defaultdict, _defaultdict, replace_all))
    register("range", LibraryType(range, lambda v: [v.start, v.stop, v.step], lambda p: range(*p)))
    register("ellipsis", LibraryType(type(...), lambda v: None, lambda p: ...))
    register("decimal", LibraryType(decimal.Decimal, str, _decimal))
    register(
        "fraction",
        LibraryType(fractions.Fraction, lambda v: [v.numerator, v.denominator], _fraction),
    )
    register("date", LibraryType(datetime.date, _date_parts, _date))
    register(
        "timedelta",
        LibraryType(
            datetime.timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda p: datetime.timedelta(*p)
        ),
    )
    register("keys", LibraryType(type({}.keys()), list, lambda p: _view(p).keys()))
    register("values", LibraryType(type({}.values()), list, lambda p: dict(enumerate(p)).values()))
    register("items", LibraryType(type({}.items()), lambda v: list(v), lambda p: dict(_ordered(p)).items()))
    LIBRARY["datetime"] = LibraryType(datetime.datetime, _unused, _datetime)
    READERS.update(n=_read_number, y=_read_array)
    SPECIAL[:] = [*SPECIAL[:1], _builtin_type, _naive_datetime, _numpy_form]
    LIBRARY["type"] = LibraryType(type, _unused, TYPES.__getitem__)


def _naive_datetime(to: Encoder, value: Any, kind: type, depth: int) -> Json | None:
    """A time without a zone; one with a zone stays, as its zone is code."""
    if kind is not datetime.datetime or value.tzinfo is not None:
        return None
    parts = [*_date_parts(value), value.hour, value.minute, value.second, value.microsecond]
    return {"x": ["datetime", to.put(parts, depth)]}


def _numpy_form(to: Encoder, value: Any, kind: type, depth: int) -> Json | None:
    """A NumPy number, or an array of numbers or texts; None for everything else.

    An array is copied: changes that model code makes to one that the tests passed do not come back.
    """
    np = sys.modules.get("numpy")
    if np is None or kind.__module__ != "numpy":
        return None
    if kind is np.ndarray and value.dtype.kind in NUMPY_KINDS and value.dtype.char not in LONG_NUMBERS:
        content = np.ascontiguousarray(value).tobytes().hex()
        return {"y": to.put([value.dtype.str, list(value.shape), content], depth)}
    if issubclass(kind, np.generic) and value.dtype.kind in NUMPY_KINDS:
        item = value.item()
        return None if type(item) is kind else {"n": [value.dtype.str, to.put(item, depth)]}
    return None


def _read_array(of: Decoder, body: Json, depth: int) -> Any:
    dtype, shape, content = of.get(body, depth)
    if of.numpy is None:
        return Opaque("numpy.ndarray")
    return of.numpy.frombuffer(bytes.fromhex(content), _dtype(of, dtype)).reshape(shape).copy()


def _read_number(of: Decoder, body: Json, depth: int) -> Any:
    dtype, item = body
    value = of.get(item, depth)
    if type(value) not in {bool, int, float, complex, str, bytes}:
        raise CodecError("malformed document: a NumPy number that is none")
    return value if of.numpy is None else _dtype(of, dtype).type(value)


def _dtype(of: Decoder, name: Json) -> Any:
    dtype = of.numpy.dtype(str(name))
    if dtype.kind not in NUMPY_KINDS or dtype.char in LONG_NUMBERS:
        raise CodecError("NumPy data of a kind that may not cross")
    return dtype
