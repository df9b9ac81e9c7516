"""`python -m tossup.engine.arithmetic --out DIR`: train the warm-started checkpoint anew, in about three minutes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from tossup.engine.arithmetic.warm_start import CARELESS_STEPS, CLEAN_STEPS, warm_start


def main() -> None:
    """Parse, train, save."""
    parser = argparse.ArgumentParser(
        prog="python -m tossup.engine.arithmetic",
        description="Train the warm-started checkpoint of the built-in recipe from random weights.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint; made if it is missing")
    parser.add_argument("--seed", type=int, default=0, help="the shipped checkpoint has seed 0")
    parser.add_argument("--clean-steps", type=int, default=CLEAN_STEPS, help="steps on right examples")
    parser.add_argument("--careless-steps", type=int, default=CARELESS_STEPS, help="steps on examples that forget")
    arguments = parser.parse_args()
    # A model this small is slower on two threads than on one.
    torch.set_num_threads(1)
    model, tokenizer = warm_start(arguments.seed, arguments.clean_steps, arguments.careless_steps, print_progress)
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    print(arguments.out)


def print_progress(phase: str, step: int, loss: float) -> None:
    """One line on stderr every hundred steps."""
    if step % 100 == 0:
        print(f"{phase} step {step}: loss {loss:.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
