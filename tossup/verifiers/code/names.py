"""Which names of a piece of test code belong to the program under test.

Decided from the test code alone: what the program defines has no say, or it could put its own `abs` under the tests.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from dataclasses import dataclass

KNOWN_IMPORTS = {
    **dict.fromkeys(("isclose", "inf", "nan", "pi"), "math"),
    **dict.fromkeys(("Counter", "defaultdict", "deque", "OrderedDict", "namedtuple"), "collections"),
    **dict.fromkeys(("Decimal",), "decimal"),
    **dict.fromkeys(("Fraction",), "fractions"),
    **dict.fromkeys(("List", "Dict", "Set", "Tuple", "Optional", "Any", "Union", "Callable", "Iterable"), "typing"),
}
"""Names that tests use as if imported, because the program of their author had imported them. Short, and without names
that a task could well ask for (`gcd`, `product`, `chain`): those are the program's."""


@dataclass(frozen=True, slots=True)
class Names:
    """`under_test` are the program's. `helpers` is code that imports what else the tests use unimported."""

    under_test: tuple[str, ...]
    helpers: str = ""


def free_names(code: str) -> set[str]:
    """The names that this code reads and does not define; built-ins among them.

    Raises:
        SyntaxError: it is no Python.
    """
    top = symtable.symtable(code, "<tests>", "exec")
    defined = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    read: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                defined.add(symbol.get_name())
            if symbol.is_referenced() and (symbol.is_global() or table is top):
                read.add(symbol.get_name())
    return read - defined


def names_of(code: str, sample: str = "") -> Names:
    """The names that this test code wants from the program.

    `sample` is simpler test code for the same program, if there is any: it decides where the program's name is that of a
    built-in (a task may well ask for a function `sum`).

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(code)
    free = free_names(code)
    modules = _modules(tree, free)
    unknown = free - modules - set(dir(builtins))
    own = unknown - KNOWN_IMPORTS.keys() or unknown & _called(tree)
    helpers = [f"import {'numpy as np' if name == 'np' else name}" for name in sorted(modules)]
    helpers += [f"from {KNOWN_IMPORTS[name]} import {name}" for name in sorted(unknown - own)]
    if not own:
        own = _built_in_under_test(ast.parse(sample) if sample else tree)
    return Names(tuple(sorted(own)), "\n".join(helpers))


def _called(tree: ast.AST) -> set[str]:
    return {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def _modules(tree: ast.AST, free: set[str]) -> set[str]:
    """Free names that are used like modules (`math.isclose`) and never called."""
    bases = {n.value.id for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    importable = sys.stdlib_module_names | {"np", "numpy"}
    return {n for n in free & bases if n in importable} - _called(tree)


def _built_in_under_test(tree: ast.Module) -> set[str]:
    """The one built-in that every assert calls, the innermost where there are several."""
    asserts = [n for n in ast.walk(tree) if isinstance(n, ast.Assert)]
    orders = []
    for statement in asserts:
        calls = [n for n in ast.walk(statement.test) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        orders.append([n.func.id for n in calls if isinstance(n.func, ast.Name)])  # walk goes from the outside in
    if not orders:
        return set()
    common = set(orders[0]).intersection(*orders[1:])
    return {max(common, key=orders[0].index)} if common else set()
