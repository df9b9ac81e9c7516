"""The small input files that README and docs speak of."""

from __future__ import annotations

import json
import random
from pathlib import Path


def write_inputs(folder: Path) -> None:
    """Write pool.jsonl, rollouts.jsonl, answers.jsonl and recipe.toml into `folder`."""
    rng = random.Random(0)
    digits = "abcdef"

    def spelled(n: int) -> str:
        return "".join(f"{digits[i]}{d}" for i, d in enumerate(reversed(str(n))))

    sums = [(rng.randrange(10, 999), rng.randrange(10, 999)) for _ in range(24)]
    pool = [
        {
            "id": f"sum-{i}",
            "prompt": f"{spelled(a)}+{spelled(b)}=",
            "reference": spelled(a + b),
            "verifier": "exact",
            "dataset": "sums",
        }
        for i, (a, b) in enumerate(sums)
    ]
    rollouts = [
        {
            "problem": f"p{i}",
            "dataset": "easy" if i % 2 else "hard",
            "reward": float(rng.random() < (0.9 if i % 2 else 0.1)),
        }
        for i in range(40)
        for _ in range(8)
    ]
    answers = [
        {"response": "So 23 * 47 = \\boxed{1081}.", "reference": "1081", "label": 1},
        {"response": "The answer is 1071.", "reference": "1081", "label": 0},
        {"response": "Half, that is \\boxed{0.5}", "reference": "\\frac{1}{2}", "label": 1},
    ]
    for name, rows in (("pool", pool), ("rollouts", rollouts), ("answers", answers)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "recipe.toml").write_text(
        'model = "builtin:arithmetic"\npool = "pool.jsonl"\nsteps = 4\n\n[rollout]\nproblems_per_step = 4\n'
        "max_new_tokens = 16\n\n[update]\nlr = 1e-4\n",
        encoding="utf-8",
    )
