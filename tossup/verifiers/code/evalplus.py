"""EvalPlus's test files (HumanEval+, MBPP+), recognised by their shape and read as calls.

Most of these files are one template: `inputs`, `results`, and an `assertion` that compares with a tolerance. Read as calls
they need neither NumPy nor a second process. A file that departs from the template in any way is not read here.
"""

from __future__ import annotations

import ast
from functools import cache

from tossup.verifiers.code.asserts import NotPlainError, literal
from tossup.verifiers.code.codec import Opaque
from tossup.verifiers.code.compare import close, shown
from tossup.verifiers.code.task import Call

_IS_FLOATS = """
def is_floats(x) -> bool:
    if isinstance(x, float):
        return True
    if isinstance(x, (list, tuple)):
        return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray):
        return x.dtype == np.float64 or x.dtype == np.float32
    return False
"""
_ASSERTIONS = (
    """
def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp, f"out: {out}, exp: {exp}"
""",
    """
def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert exact_match
""",
)
_LOOP = """
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion({function}(*inp), exp, {tolerance})
"""


@cache
def _known_definitions() -> frozenset[str]:
    return frozenset(ast.dump(ast.parse(source).body[0]) for source in (_IS_FLOATS, *_ASSERTIONS))


def template_calls(test: str, entry: str) -> tuple[Call, ...]:
    """The calls of a test file that follows the template. `entry` is the function's name in the file.

    Raises:
        NotPlainError: it does not.
        SyntaxError: it is no Python.
    """
    body = ast.parse(test).body
    lists: dict[str, ast.expr] = {}
    loop: ast.stmt | None = None
    for statement in [s for top in body for s in (_inside(top))]:
        match statement:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.FunctionDef() if ast.dump(statement) in _known_definitions():
                continue
            case ast.Assign(targets=[ast.Name(id="inputs" | "results" as name)], value=value):
                lists[name] = value
            case ast.For() if loop is None:
                loop = statement
            case _:
                raise NotPlainError("not the template")
    if loop is None or lists.keys() != {"inputs", "results"}:
        raise NotPlainError("not the template")
    function = "candidate" if any(isinstance(s, ast.FunctionDef) and s.name == "check" for s in body) else entry
    return _paired(lists, _tolerance(loop, function))


def _inside(top: ast.stmt) -> list[ast.stmt]:
    """The statements of `def check(candidate)`, or the statement itself."""
    is_check = (
        isinstance(top, ast.FunctionDef) and top.name == "check" and [a.arg for a in top.args.args] == ["candidate"]
    )
    return top.body if isinstance(top, ast.FunctionDef) and is_check else [top]


def _tolerance(loop: ast.stmt, function: str) -> float:
    """The tolerance that the loop passes on, after a look at whether it is the template's loop."""
    match loop:
        case ast.For(body=[ast.Expr(value=ast.Call(args=[_, _, tolerance]))]):
            value = literal(tolerance)
            pattern = _LOOP.format(function=function, tolerance=ast.unparse(tolerance))
            if ast.dump(ast.parse(pattern).body[0]) == ast.dump(loop) and isinstance(value, int | float):
                return float(value)
    raise NotPlainError("not the template's loop")


def _paired(lists: dict[str, ast.expr], tolerance: float) -> tuple[Call, ...]:
    try:
        inputs, results = literal(lists["inputs"]), literal(lists["results"])
    except (TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as e:
        raise NotPlainError(str(e)) from None
    calls = []
    for args, expected in zip(inputs, results, strict=False):

        def check(got: object, expected: object = expected) -> bool:
            return not isinstance(got, Opaque) and close(expected, got, tolerance)

        calls.append(Call(tuple(args), {}, check, shown(expected)))
    return tuple(calls)
