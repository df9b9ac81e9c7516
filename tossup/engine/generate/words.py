"""What every generator takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tossup.engine.config import SamplingConfig
from tossup.engine.policy import Policy
from tossup.records import Stop


class Sample(NamedTuple):
    """One sampled answer, before it is judged."""

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    """Log-probabilities in nats of the distribution that was sampled from: at the sampling temperature."""
    stop: Stop
    seconds: float
    """This answer's share of the wall time."""


OnGroup = Callable[[int, list[Sample]], None]
"""Called once for each prompt, with its position and its answers, as soon as all of them are there; in any order."""


class Generator(Protocol):
    """Whoever samples answers from the policy.

    `version` counts the updates that the generator's weights have seen; every rollout records it. A generator samples at
    the given temperature over the whole vocabulary, with no top_p, top_k or min_p. An answer ends with one of the policy's
    end tokens, which is part of it, or at `max_new_tokens`, or where the model's context is full; a prompt that leaves no
    room in the context gets answers without a token.

    The policy's weights have to be whole while anything but `sleep` and `close` is called: one that died is given them again.
    """

    version: int

    def generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        group_size: int,
        seeds: Sequence[int],
        sampling: SamplingConfig,
        on_group: OnGroup | None = None,
    ) -> list[list[Sample]]:
        """`group_size` answers to each prompt (token ids, none empty), in the order of the prompts.

        `seeds` has one seed a prompt, in [0, 2^63); the seed of each answer follows from it (`draws.answer_seeds`).

        Raises:
            TossupError: the model's logits are NaN or infinite, or the generator failed for good.
        """

    def push(self, policy: Policy, version: int) -> None:
        """Sample from these weights from now on; the first time, before anything is asked. Wakes a generator that sleeps."""

    def sleep(self) -> None:
        """Give device memory back until `wake` or `push`; for the time of an update. Does nothing where there is none."""

    def wake(self) -> None:
        """Be ready again, with the weights of the last push."""

    def close(self) -> None:
        """End for good; more than once does no harm."""
