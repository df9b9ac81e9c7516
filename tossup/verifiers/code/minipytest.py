"""Running pytest files in the tests process without pytest."""

from __future__ import annotations

import types


def run(tests: types.ModuleType) -> None:
    """Run the tests."""
    for name, value in list(vars(tests).items()):
        if name.startswith("test"):
            value()
