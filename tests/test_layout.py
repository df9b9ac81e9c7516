"""The parts are visible at the top of the repository and what the package exports is what it declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tossup

ROOT = Path(__file__).parent.parent


def test_the_four_links_resolve() -> None:
    for part in ("verifiers", "curriculum", "engine", "sandbox"):
        assert (ROOT / part).is_symlink()
        assert (ROOT / part).resolve() == (ROOT / "tossup" / part).resolve()
        assert (ROOT / part / "__init__.py").is_file()


def test_the_public_names_are_sorted_and_there() -> None:
    assert tossup.__all__ == sorted(tossup.__all__)
    assert all(hasattr(tossup, name) for name in tossup.__all__)


def test_help_and_audit_do_not_import_torch() -> None:
    code = (
        "import sys\n"
        "import tossup.cli, tossup.cli.train, tossup.cli.curate, tossup.cli.audit, tossup.cli.verify\n"
        "import tossup.curriculum.audit, tossup.verifiers\n"
        "print([m for m in ('torch', 'transformers', 'sympy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
