"""What the engine's tests share."""

from __future__ import annotations

import pytest
from small import make_policy

from tossup.engine.policy import Policy


@pytest.fixture
def policy() -> Policy:
    return make_policy()
