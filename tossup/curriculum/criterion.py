"""What counts as right: a rule over a rewards column, such as `>= 1` or `== pass`.

Waste is judged on the outcome. Shaped rewards hide it: a floor of 0.01 for a well-formed answer makes a group that
is wrong throughout look mixed. So the rule is `>= 1` unless another is given.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from tossup.records import TossupError

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
RIGHT_WORDS = ("correct", "pass", "passed", "true", "1", "1.0", "yes")
"""What a text column says of a right answer, in any case, when no rule is given."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A comparison with a number or a word. Without `given`, text columns are judged by RIGHT_WORDS."""

    sign: str = ">="
    value: float | str = 1.0
    given: bool = False

    def right(self, column: str, dtype: pl.DataType) -> pl.Expr:
        """Whether the reward in `column` is that of a right answer; null where the reward is.

        Raises:
            TossupError: the rule compares with a word and the column holds numbers, or the other way round.
        """
        if dtype == pl.Boolean and not self.given:
            return pl.col(column)
        if dtype == pl.String and not self.given:
            return pl.col(column).str.to_lowercase().str.strip_chars().is_in(RIGHT_WORDS)
        if (dtype == pl.String) != isinstance(self.value, str):
            raise TossupError(f"--correct-if '{self}' compares with {self.value!r}, but {column!r} holds {dtype}")
        reward = pl.col(column) if dtype == pl.String else pl.col(column).cast(pl.Float64)
        rule: pl.Expr = OPERATORS[self.sign](reward, pl.lit(self.value))
        return rule

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}" if isinstance(self.value, float) else f"{self.sign} {self.value}"


def parse(text: str) -> Criterion:
    """Read a rule: one of >= > <= < == != and a number or a word.

    Raises:
        TossupError: it is no such rule.
    """
    found = re.fullmatch(r"\s*(>=|<=|==|!=|>|<)\s*(\S.*?)\s*", text)
    if found is None:
        raise TossupError(f"--correct-if {text!r}: expected a comparison and a value, such as '>= 1' or '== pass'")
    sign, literal = found.groups()
    try:
        return Criterion(sign, float(literal), given=True)
    except ValueError:
        pass  # a word
    if sign not in ("==", "!="):
        raise TossupError(f"--correct-if {text!r}: {literal!r} is no number, and words have no order; use == or !=")
    return Criterion(sign, literal.strip("'\""), given=True)
