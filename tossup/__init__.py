"""tossup: verifiers, a code sandbox, a curriculum that seeks toss-ups, and a GRPO engine that wastes nothing."""

from tossup.records import Fate, Group, Problem, Rollout, Ruling, Stop, TossupError, Verdict

__all__ = ["Fate", "Group", "Problem", "Rollout", "Ruling", "Stop", "TossupError", "Verdict"]
