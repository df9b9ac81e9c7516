"""A model over its cache: prompts are read once, left-padded, then a token a row at a time."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor


class Cached:
    """The running batch of a decoding loop; its rows may be repeated, reordered and dropped.

    Shapes: B rows of the batch as it is now, V vocabulary.
    """

    def __init__(self, model: Any) -> None:
        from transformers import DynamicCache

        self.model, self.cache = model, DynamicCache(config=model.config)
        self.name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def logits(self, ids: Tensor, attention: Tensor, positions: Tensor) -> Tensor:
        """Append `ids` to the rows and return the logits after the last of them, [B, V].

        `attention` is of all tokens of the rows so far, these included; `positions` are those of `ids`.
        """
        out = self.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self.name: self.cache},
        )
        return out.logits[:, -1]  # type: ignore[no-any-return]

    def take(self, rows: Tensor) -> None:
        """Let the batch be these of its rows, in this order; one may come more than once.

        By the cache's own `reorder_cache`: its `batch_repeat_interleave` and `batch_select_indices` leave out the states of
        layers that are not attention.
        """
        self.cache.reorder_cache(rows)  # type: ignore[arg-type]  # it names a class that no tensor has
