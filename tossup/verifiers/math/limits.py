"""How big an answer may be, decided before any arithmetic.

A reference is written by a person and small; an answer comes from a policy that may try anything. Every bound below is
checked on text, tokens or tree before the numbers behind them are built, so that no power tower, no nesting and no
long digit string costs more than reading it.
"""

from __future__ import annotations

MAX_ANSWER_CHARS = 6_000
"""A final answer longer than this is not read at all."""
MAX_TOKENS = 1_500
"""Symbols, numbers and commands of one answer."""
MAX_DEPTH = 36
"""Brackets, roots, fractions and exponents inside each other."""
MAX_DIGITS = 4_000
"""Digits of one number (CPython refuses to convert more than 4,300)."""
MAX_BITS = 80_000
"""Bits of the numerator or denominator of an exact value; 2006! has 19,000."""
MAX_MAGNITUDE = 1 << 40
"""Largest base-two exponent of a value in high-precision arithmetic."""
MAX_TRIG_BITS = 128
"""Trigonometric arguments beyond 2 ** this need more digits than we keep."""
MAX_FACTORIAL = 5_000
MAX_ITEMS = 400
"""Members of a list, set, tuple or matrix."""
TAIL_CHARS = 12_000
"""How far from its end a response without a box is searched for its answer."""


class Unreadable(Exception):  # noqa: N818  (a finding about the text, not a fault)
    """The text is not a mathematical answer that we know how to read. The message says where it stops making sense."""


class Oversized(Exception):  # noqa: N818
    """The text is over a structural limit. The message says which."""


class Undefined(Exception):  # noqa: N818
    """The expression has no value here, such as 1/0 or the logarithm of 0."""


class Inexact(Exception):  # noqa: N818
    """The value is not a rational number, so exact arithmetic ends here."""
