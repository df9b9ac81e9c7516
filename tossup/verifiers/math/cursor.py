"""A place in the tokens of an answer, with the bounds on depth that every rule of the grammar keeps."""

from __future__ import annotations

from tossup.verifiers.math.lexer import END, Token
from tossup.verifiers.math.limits import MAX_DEPTH, Oversized, Unreadable


class Cursor:
    """One pass over the tokens of one answer. `bars` counts the absolute values that are open."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.index = 0
        self.depth = 0
        self.bars = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.index]

    @property
    def following(self) -> Token:
        """The token after the next."""
        return self.tokens[self.index + 1] if self.index + 1 < len(self.tokens) else END

    def take(self) -> Token:
        """Read one token."""
        token = self.tokens[self.index]
        if token is not END:
            self.index += 1
        return token

    def at(self, *values: str) -> bool:
        """Whether the next token is one of these operators or commands."""
        token = self.tokens[self.index]
        return token.kind in ("op", "cmd") and token.value in values

    def accept(self, *values: str) -> bool:
        """Read the next token if it is one of these operators or commands."""
        if self.at(*values):
            self.index += 1
            return True
        return False

    def expect(self, value: str) -> None:
        """Read this operator or fail."""
        if not self.accept(value):
            raise Unreadable(f"expected {value!r} before {self.token.value or 'the end'!r}")

    def enter(self) -> None:
        """One level deeper."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Oversized(f"nested more than {MAX_DEPTH} deep")

    def leave(self) -> None:
        """One level up again."""
        self.depth -= 1
