"""Hypothesis: how fast the machine is says nothing about the code, and one change is judged by the same examples as the next.

`pytest --hypothesis-profile=explore` looks for new ones.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

explore = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", explore)
settings.register_profile("tossup", explore, derandomize=True)
settings.load_profile("tossup")
