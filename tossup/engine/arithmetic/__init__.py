"""The built-in recipe: arithmetic for a tiny model, from start to finish on a laptop's CPU in minutes.

    pool(seed)          the training pool, made to look like real ones: much of it solved, much of it out of reach
    heldout(seed)       fresh problems with right keys, none of them in any training pool
    checkpoint_path()   the warm-started policy that ships with the package, a Hugging Face folder
    recipe_path()       the recipe, a config file like any other

`python -m tossup.engine.arithmetic --out DIR` trains the checkpoint anew; `docs/recipe.md` tells how all this was chosen.
"""

from __future__ import annotations

from pathlib import Path

from tossup.engine.arithmetic.problems import heldout, pool

__all__ = ["checkpoint_path", "heldout", "pool", "recipe_path"]


def checkpoint_path() -> Path:
    """The folder of the warm-started policy: config.json, model.safetensors (float32), tokenizer files."""
    return Path(__file__).parent / "checkpoint"


def recipe_path() -> Path:
    """The built-in recipe, which `tossup train` reads when it is given no other."""
    return Path(__file__).parent / "recipe.toml"
