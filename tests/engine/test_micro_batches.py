"""Where a batch is cut: as late as its budget of tokens allows, a budget just met included, packed and padded."""

from __future__ import annotations

import pytest
import torch
from small import make_group

from tossup.engine.batch import micro_batches

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]
"""With prompts of 5 and 6 tokens, rows of 7, 7, 8, 8, 9, 11 and 14."""


@pytest.mark.parametrize(
    ("packed", "budget", "rows"),
    [
        (True, 34, [4, 3]),  # 30, and with 9 it would be 39; then 9 + 11 + 14 = 34
        (True, 33, [4, 2, 1]),
        (False, 34, [4, 2, 1]),  # 4 x 8, where 5 x 9 is too much; then 2 x 11, where 3 x 14 is
        (False, 32, [4, 2, 1]),
        (False, 31, [3, 2, 2]),  # 3 x 8, where 4 x 8 is too much; then 2 x 9, where 3 x 11 is; then 2 x 14
        (True, 64, [7]),
        (True, 63, [6, 1]),
        (False, 98, [7]),
        (True, 1, [1] * 7),
    ],
)
def test_as_many_rows_as_the_budget_allows(packed: bool, budget: int, rows: list[int]) -> None:
    cut = micro_batches(
        GROUPS,
        std_norm=True,
        aggregate="token",
        max_new_tokens=12,
        token_budget=budget,
        pad_id=0,
        device=torch.device("cpu"),
        packed=packed,
    )
    assert [len(mb.ids_BT1) for mb in cut] == rows
