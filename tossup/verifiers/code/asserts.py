"""Test code that is a plain list of calls: `assert f(args) == literal` and its relatives, read without running anything.

What does not fit (loops, helpers, tolerances written out, nested calls) is not guessed at: the caller then runs the code in
the tests process instead. Bare `assert f(x)` and `assert not f(x)` count, as does `is` with None, True and False.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tossup.verifiers.code.codec import Opaque
from tossup.verifiers.code.compare import shown
from tossup.verifiers.code.task import Call, Check

NAMED = {"inf": float("inf"), "nan": float("nan")}
"""Names that may stand in a literal, as `from math import inf` brings them."""
MAX_DIGITS = 4000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Div: operator.truediv,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_MAKERS: dict[str, Callable[..., Any]] = {
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "tuple": tuple,
    "float": float,
    "complex": complex,
}


class NotPlainError(ValueError):
    """The code is more than a list of calls with literal arguments."""


def literal(node: ast.expr, names: Mapping[str, Any] = NAMED) -> Any:
    """The value of a literal expression; arithmetic on small numbers and `set([...])` count as literal.

    Raises:
        NotPlainError: it is none.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [literal(x, names) for x in items]
        case ast.Tuple(elts=items):
            return tuple(literal(x, names) for x in items)
        case ast.Set(elts=items):
            return {literal(x, names) for x in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {literal(k, names): literal(v, names) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](literal(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(type(op), literal(left, names), literal(right, names))
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _MAKERS and len(args) <= 1:
            return _MAKERS[name](*[literal(x, names) for x in args])
    raise NotPlainError(f"not a literal: {type(node).__name__}")


def _arithmetic(op: type[ast.operator], a: Any, b: Any) -> Any:
    numbers = all(type(x) in {int, float, complex} for x in (a, b))
    repeats = op is ast.Mult and {type(a), type(b)} in ({int, list}, {int, str}) and len(repr((a, b))) < MAX_DIGITS
    small = not numbers or (op is not ast.Pow) or (abs(a) < 1e6 and abs(b) < MAX_DIGITS / 8)
    if (
        op not in _BINARY
        or not (numbers or (repeats and max(x for x in (a, b) if type(x) is int) < MAX_DIGITS))
        or not small
    ):
        raise NotPlainError("arithmetic that is not plain")
    return _BINARY[op](a, b)


def calls_in(statements: Sequence[ast.stmt], names: frozenset[str]) -> tuple[Call, ...]:
    """The calls of a list of statements, of functions by these names only.

    Raises:
        NotPlainError: a statement is something else.
    """
    calls: list[Call] = []
    for statement in statements:
        match statement:
            case ast.Assert(test=ast.Constant(value=value)) if value:
                continue
            case ast.Assert(test=test):
                try:
                    calls.append(_call_of(test, names))
                except (TypeError, ValueError, ArithmeticError, KeyError, RecursionError) as e:
                    raise NotPlainError(str(e)) from None
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                continue
            case ast.Assign(targets=[ast.Name(id="METADATA")]):
                continue
            case _:
                raise NotPlainError(f"line {statement.lineno}: not an assert of a call")
    return tuple(calls)


def _call_of(test: ast.expr, names: frozenset[str]) -> Call:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            call, expected = (
                (left, literal(right))
                if isinstance(left, ast.Call) and _is_ours(left, names)
                else (right, literal(left))
            )
            return _made(call, names, lambda got: bool(got == expected), shown(expected))
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            unwanted = literal(right)
            return _made(left, names, lambda got: bool(got != unwanted), f"anything but {shown(unwanted)}")
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None | True | False as single)]):
            return _made(left, names, lambda got: got is single, f"{single} itself")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _made(operand, names, lambda got: not got, "something false")
    return _made(test, names, bool, "something true")


def _is_ours(node: ast.Call, names: frozenset[str]) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in names


def _made(node: ast.expr, names: frozenset[str], check: Check, wanted: str) -> Call:
    if not isinstance(node, ast.Call) or not _is_ours(node, names):
        raise NotPlainError("not a call of the function under test")
    args: list[Any] = []
    for arg in node.args:
        args.extend(literal(arg.value)) if isinstance(arg, ast.Starred) else args.append(literal(arg))
    kwargs = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise NotPlainError("keyword arguments from a dict")
        kwargs[keyword.arg] = literal(keyword.value)
    return Call(tuple(args), kwargs, _plain_only(check), wanted)


def _plain_only(check: Check) -> Check:
    """The check, refusing an opaque object before it is asked for its truth."""
    return lambda got: not isinstance(got, Opaque) and check(got)
