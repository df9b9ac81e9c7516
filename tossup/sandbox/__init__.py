"""Run untrusted code. Knows nothing of problems or models."""

from tossup.sandbox.pool import Sandbox
from tossup.sandbox.words import Conversation, Limits, Outcome, Result

__all__ = ["Conversation", "Limits", "Outcome", "Result", "Sandbox"]
