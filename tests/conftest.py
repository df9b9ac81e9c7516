"""Hypothesis without deadlines: how fast a test runs on a busy machine says nothing about the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("tossup", deadline=None)
settings.load_profile("tossup")
