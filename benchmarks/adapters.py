"""The small callables through which the shared scoring scripts run tossup, the same way as they run a peer."""

from __future__ import annotations
