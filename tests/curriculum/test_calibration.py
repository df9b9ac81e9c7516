from __future__ import annotations

import numpy as np
import pytest

from tossup.curriculum.calibration import Calibration

KINDS = np.arange(3, dtype=np.int8)


def test_without_evidence_every_expectation_stands() -> None:
    assert Calibration(3).ratio(KINDS).tolist() == [1.0, 1.0, 1.0]


def test_each_kind_has_its_own_ratio_and_forgets() -> None:
    calibration = Calibration(3)
    wave = np.array([0, 0, 1, 1], np.int8)
    for _ in range(600):
        calibration.see(wave, np.full(4, 0.4), np.array([0.1, 0.3, 0.4, 0.4]))
    assert calibration.ratio(KINDS) == pytest.approx([0.5, 1.0, 1.0], abs=0.01)
    for _ in range(600):
        calibration.see(wave, np.full(4, 0.4), np.array([0.4, 0.4, 0.1, 0.1]))
    assert calibration.ratio(KINDS) == pytest.approx([1.0, 0.25, 1.0], abs=0.01)
