"""How much of the verification goes by while answers are still being generated?

    python -m benchmarks.overlap [--problems 48] [--case math,code,hang]

A random model of 0.87 million parameters really generates: 8 answers of 64 tokens to each problem, 64 answers at once. What it
says is turned into a text that is worth judging, by its tokens:

math   a solution of about 3,000 characters that ends in a boxed fraction, for the math verifier
code   a program that works for a while, for the code verifier: three cases on standard input, in the sandbox
hang   the same, but some of the answers to one problem never end: they are stopped after 5 s of CPU time each

Three wall times: generation alone, verification alone (all answers at once), and both as the engine runs them. `hidden` is how
much of the shorter of the first two goes by beside the other. `held up` is for how many seconds the generating thread, with
verification beside it, neither ran nor waited for a CPU: that is what it waits for Python's lock (by Linux's schedstat; it
means the same on a busy machine, which the wall times do not). CPU is that of this process alone, without the sandbox's. With
`--repeat`, the median of each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.engine import build_wide_model
from tossup import verifiers
from tossup.engine.config import SamplingConfig
from tossup.engine.generate import Sample, TransformersGenerator
from tossup.engine.generate.draws import prompt_seeds
from tossup.engine.policy import Policy, load
from tossup.engine.prompts import encode_prompt
from tossup.engine.rollouts import sample_groups
from tossup.records import Problem

GROUP, LIMIT, SEED = 8, 64, 1
T = TypeVar("T")
SAMPLING = SamplingConfig(max_new_tokens=LIMIT, batch_size=64)
HANG_S = 5.0


class Case(NamedTuple):
    """The problems of a workload, and the text that stands for an answer whose tokens sum up to a number."""

    problems: list[Problem]
    write: Callable[[int], str]


class Writer:
    """A tokenizer that reads as the model's own and writes the workload's answers."""

    def __init__(self, own: Any, write: Callable[[int], str]) -> None:
        self.own, self.write, self.chat_template = own, write, None

    def __call__(self, text: str) -> Any:
        return self.own(text)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return self.write(sum(ids))


def math_case(n: int) -> Case:
    """Long solutions to problems whose answers are fractions."""
    steps = "\n".join(
        f"Step {i}: we add {i} to both sides, so that x + {i} = {2 * i + 1} and go on." for i in range(50)
    )

    def write(number: int) -> str:
        return f"{steps}\nSo x is \\boxed{{\\frac{{{number % 5}}}{{7}} + {number % 3}}}"

    return Case([Problem(f"m{i}", _prompt(i), f"\\frac{{{i % 5 + 7}}}{{7}}", "math") for i in range(n)], write)


def code_case(n: int, hanging: bool = False) -> Case:
    """Programs that take a while; some of them never end on a negative number."""

    def write(number: int) -> str:
        loop = "while n < 0:\n    pass\n" if number % 4 == 0 else ""
        work = f"total = sum(i * i % 7 for i in range({20_000 + number % 1000}))\n"
        return f"```python\nn = int(input())\n{loop}{work}print(n + {number % 3})\n```"

    def problem(i: int) -> Problem:
        numbers = [-1, 2, 3] if hanging and i == 0 else [1, 2, 3]
        fields = {"inputs": [f"{m}\n" for m in numbers], "outputs": [f"{m + i % 3}\n" for m in numbers]}
        return Problem(
            f"c{i}", _prompt(i), json.dumps(fields | {"format": "stdin", "limits": {"cpu_seconds": HANG_S}}), "code"
        )

    return Case([problem(i) for i in range(n)], write)


CASES: dict[str, Callable[[int], Case]] = {
    "math": math_case,
    "code": code_case,
    "hang": lambda n: code_case(n, hanging=True),
}


def _prompt(i: int) -> str:
    return f"problem {i:04d} of the case ="


class Times(NamedTuple):
    """Of one piece of work, in seconds."""

    wall: float
    cpu: float
    """Of this process."""
    held_up: float
    """Wall time in which the calling thread neither ran nor waited for a CPU."""


def timed(work: Callable[[], T]) -> tuple[T, Times]:
    """Do it, and say how long it took."""
    scheduled = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def now() -> tuple[float, float, float]:
        running, waiting, _ = map(int, scheduled.read_text().split())
        return time.perf_counter(), time.process_time(), (running + waiting) / 1e9

    before = now()
    result = work()
    wall, cpu, busy = (b - a for a, b in zip(before, now(), strict=True))
    return result, Times(wall, cpu, wall - busy)


class Timed(TransformersGenerator):
    """The generator, with a clock of its own."""

    times: Times

    def generate(self, *args: Any, **kwargs: Any) -> list[list[Sample]]:
        """See `Generator`."""
        answers, self.times = timed(lambda: TransformersGenerator.generate(self, *args, **kwargs))
        return answers


def measure(policy: Policy, case: Case) -> dict[str, float]:
    """The three times of one case, and what follows from them."""
    policy = dataclasses.replace(policy, tokenizer=Writer(policy.tokenizer, case.write))
    prompts = [encode_prompt(policy, problem) for problem in case.problems]
    seeds = prompt_seeds(SEED, 0, len(prompts))
    generator = Timed(policy)
    answers = generator.generate(prompts, GROUP, seeds, SAMPLING)
    alone = generator.times
    pairs = [(p, policy.decode(s.ids)) for p, group in zip(case.problems, answers, strict=True) for s in group]
    verifiers.verify_many(pairs[-GROUP:])  # the workers start
    verdicts, verification = timed(lambda: verifiers.verify_many(pairs))
    (groups, _), both = timed(
        lambda: sample_groups(policy, case.problems, SAMPLING, group_size=GROUP, seed=SEED, generator=generator)
    )
    found = [rollout.verdict for group in groups for rollout in group.rollouts]
    if [(v.ruling, v.reason) for v in verdicts] != [(v.ruling, v.reason) for v in found if v is not None]:
        raise SystemExit("the engine's verdicts are not those of verify_many")
    return {
        "generation": alone.wall,
        "verification": verification.wall,
        "together": both.wall,
        "hidden": (alone.wall + verification.wall - both.wall) / min(alone.wall, verification.wall),
        "held_up": generator.times.held_up,
        "cpu_apart": alone.cpu + verification.cpu,
        "cpu_together": both.cpu,
    }


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=48)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build_wide_model(Path(folder))
        policy = load(folder, "cpu")
    import torch

    torch.set_num_threads(1)
    print(
        f"{platform.machine()}, Python {platform.python_version()}, {args.problems} problems x {GROUP}, {date.today()}\n"
    )
    print(
        "| case | generation, s | verification, s | together, s | hidden | held up, s | CPU s here, apart / together |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in args.case.split(","):
        rounds = [measure(policy, CASES[name](args.problems)) for _ in range(args.repeat)]
        r = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        times = " | ".join(f"{r[key]:.2f}" for key in ("generation", "verification", "together"))
        print(f"| {name} | {times} | {r['hidden']:.0%} | {r['held_up']:.2f} |", end="")
        print(f" {r['cpu_apart']:.2f} / {r['cpu_together']:.2f} |", flush=True)
    verifiers.close()


if __name__ == "__main__":
    main()
