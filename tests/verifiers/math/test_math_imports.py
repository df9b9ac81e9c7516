"""What importing and using the math verifier loads."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from tossup.verifiers.math import judge
assert judge("So it is \\\\boxed{0.5}.", "1/2").ruling == "correct"
assert judge("So it is \\\\boxed{(x+1)^2}.", "x^2+2x+1").ruling == "correct"
assert "mpmath" not in sys.modules
assert judge("So it is \\\\boxed{\\\\sqrt{8}}.", "2\\\\sqrt{2}").ruling == "correct"
assert "sympy" not in sys.modules
"""


def test_neither_sympy_nor_mpmath_is_loaded_before_an_answer_needs_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_code_like_answer_loads_and_runs_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from tossup.verifiers.math import judge

    canary = tmp_path / "canary"
    for answer in (
        f"__import__('os').system('touch {canary}')",
        f"[open('{canary}','w')]",
        f"\\pi*len(str(open('{canary}','w')))",
        f"().__class__.__base__.__subclasses__()[0]('{canary}')",
        f"\\input{{|touch {canary}}}",
    ):
        assert judge(f"The answer is $\\boxed{{{answer}}}$.", "0").ruling == "wrong"
    assert not canary.exists()
