"""The training loop.

One step, as in the paper (arXiv:2402.03300, section 4.1), with the curriculum around it:

    draws  = sampler.choose(n)                    toward the toss-ups
    groups = sample_groups(draws)                 G answers each from the current policy, judged
    sampler.observe(groups)                       every group, also those that will not train
    kept   = the informative groups               degenerate groups leave with their fate
    update(kept)                                  nothing of the others is in the loss or its denominator
    ledger, metrics, checkpoint                   the checkpoint waits for the ledger and commits the step

A kill at any instant loses the step in flight: on resume the ledger and the metrics are cut back to the checkpoint, and
the step runs again from the same state with the same seeds, so it gives the same answers, rewards and weights.

Under torchrun this loop runs in rank 0 alone; `Learner`'s methods are run by all ranks together, see `distributed`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tossup.curriculum import atomic
from tossup.curriculum.batch import BatchRule, Pending, collect
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.sampler import Draw
from tossup.engine import checkpoint
from tossup.engine.batch import without_levelled
from tossup.engine.completions import completions
from tossup.engine.config import TrainConfig
from tossup.engine.dashboards import Dashboard, NoDashboard, open_dashboard
from tossup.engine.distributed import World, join
from tossup.engine.evaluate import Accuracy, accuracy
from tossup.engine.folder import Metrics, RunFolder, default_root, write_atomically
from tossup.engine.inputs import Problems, of_model
from tossup.engine.learner import Learner
from tossup.engine.metrics import Clock, check_tokens, nothing_trained, step_metrics, summary
from tossup.engine.pools import learned, tags
from tossup.engine.progress import Progress, Watcher
from tossup.engine.rollouts import stream
from tossup.engine.samplers import make_sampler, watched
from tossup.engine.stopping import listening
from tossup.records import Group, tokens

WAVE_STREAM = 1
"""Keeps the seeds of training waves apart from those of evaluation (`evaluate.EVAL_STREAM`)."""


def train(config: TrainConfig, watcher: Watcher) -> dict[str, Any]:
    """Train, or go on with the run that the folder holds, and return its summary (also `summary.json`).

    Under torchrun each of its processes calls this; the summary of those that follow is empty.

    Raises:
        TossupError: the model, the pool or the folder cannot be used, or a process of the run is lost; nothing that was
            saved is lost.
    """
    world = join(config.device, config.timeout)
    try:
        if world.leads:
            return _lead(config, watcher, world)
        with closing(Learner(config, world)) as learner, listening(world):
            learner.follow()
        return {}
    finally:
        world.leave()


def _lead(config: TrainConfig, watcher: Watcher, world: World) -> dict[str, Any]:
    folder = RunFolder(Path(config.out) if config.out else default_root(config))
    problems = Problems.of(config)
    with folder.held():
        folder.start_or_resume(config, problems.fingerprints | of_model(config.model))
        run = Run(config, folder, watcher, problems, world)
        with closing(run.ledger), closing(run.learner):  # before the folder is let go
            run.resume()
            if (result := run.result()) is None:
                run.cut_back()
                with run.dashboard(), listening(world):
                    run.evaluate_at_start()
                    while (reason := run.finished()) is None:
                        if world.told:
                            run.stop(world.told)
                        run.one_step()
                    result = run.finish(reason)
            run.learner.dismiss()
            return result


class Run:
    """Everything that the loop holds in memory; model and optimizer are `learner`'s."""

    def __init__(
        self, config: TrainConfig, folder: RunFolder, watcher: Watcher, problems: Problems, world: World
    ) -> None:
        self.config, self.folder, self.watcher = config, folder, watcher
        self.pool, self.held_out = problems.pool, problems.held_out
        self.learner = Learner(config, world, watcher.generated, watcher.note)
        self.sampler = make_sampler(config, self.pool.attempts, self.pool.correct, tags(self.pool))
        self.rule = BatchRule(
            groups=min(config.rollout.problems_per_step, len(self.pool)),
            refill=config.curriculum.refill,
            max_waves=config.curriculum.max_waves,
            by_yield=not config.curriculum.full_waves,
            max_age=config.curriculum.max_age,
            patience=config.curriculum.patience,
        )
        self.pending = Pending()
        self.ledger = Ledger(folder.ledger, folder.root.name, keep_text=config.save_text)
        self.metrics = Metrics(folder.metrics)
        self.board: Dashboard = NoDashboard()
        self.progress = Progress()
        self.saved = -1
        """The step of the newest checkpoint; -1: there is none."""
        self.clock = Clock()
        self.started = time.perf_counter()

    def resume(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        newest = checkpoint.latest(self.folder.checkpoints)
        if newest is not None:
            state = checkpoint.read_state(newest)
            self.learner.read_checkpoint(newest)
            self.sampler.restore({name: tensor.numpy() for name, tensor in state["sampler"].items()})
            self.pending.restore(json.loads(state["pending"]))
            self.progress = Progress(**json.loads(state["progress"]))
            self.saved = self.progress.step
            self.watcher.note(f"resuming {self.folder.root} after step {self.progress.step}")
        else:
            self.watcher.note(f"run folder {self.folder.root}")
        self.started -= self.progress.seconds

    def cut_back(self) -> None:
        """Drop what lies beyond the checkpoint from the ledger and the metrics.

        Raises:
            TossupError: a part of the ledger is damaged or gone, so that its tokens no longer add up.
        """
        self.folder.sweep()
        self.ledger.truncate(self.progress.step)
        waiting = sum(tokens(group.rollouts) for _, group in self.pending.waiting)
        check_tokens(self.ledger, self.progress.tokens_generated - waiting)
        if (lost := self.metrics.keep_before(self.progress.step)) is not None:
            self.watcher.note(lost)

    def result(self) -> dict[str, Any] | None:
        """The summary of a run that is complete as it is."""
        if self.finished() is None or not self.folder.summary.exists():
            return None
        summary: dict[str, Any] = json.loads(self.folder.summary.read_text(encoding="utf-8"))
        return summary if summary["steps"] == self.progress.step else None

    @contextmanager
    def dashboard(self) -> Iterator[None]:
        """Open the dashboard that the configuration names, for as long as the run goes."""
        config = self.config.model_dump()
        self.board = open_dashboard(self.config.log, self.config.project, self.folder.root, config, self.progress.step)
        try:
            yield
        finally:
            self.board.close()

    def evaluate_at_start(self) -> None:
        """Measure the start model, once in the run's life."""
        if self.held_out and not self.progress.evaluations:
            with self.clock("evaluate"):
                result = self._evaluate()
            self.watcher.note(f"held-out accuracy before: {result.mean:.3f} ± {result.stderr:.3f}")

    def finished(self) -> str | None:
        """Why the run is over, or None."""
        if self.progress.ended_by:
            return self.progress.ended_by
        if self.progress.step >= self.config.steps:
            return "steps"
        if 0 < self.config.token_budget <= self.progress.tokens_generated:
            return "token_budget"
        return None

    def one_step(self) -> None:
        """Choose, generate, judge, observe, update, record, save.

        The times of a line of metrics are those since the line before, so the save before it is in it and nothing escapes.
        """
        step, p, clock = self.progress.step, self.progress, self.clock
        waves = Waves(self)
        with clock("curriculum"):
            batch = collect(self.sampler, waves.run, step, self.rule, self.pending)
            if self.config.update.overlong:
                batch = without_levelled(batch, self.config.rollout.max_new_tokens, self.config.update.overlong)
        with clock("update"):
            figures = self.learner.update(batch.kept, step) if batch.kept else {}
        with clock("ledger"):
            self.ledger.append_soon(step, batch.entries)
        metrics = step_metrics(batch, waves.groups) | figures
        for warning in p.warnings(metrics):
            self.watcher.note(warning)
        p.take(batch)
        every = self.config.eval.every
        if self.held_out and every and p.step % every == 0:
            with clock("evaluate"):
                metrics |= self._evaluate().figures
        times = clock.lap()
        p.take_times(times, since_start=time.perf_counter() - self.started)
        metrics |= times | {"tokens/total": p.tokens_generated, "seconds": p.seconds}
        self.metrics.append({"step": step} | metrics)
        if self.config.log:
            shown = completions(step, batch.entries, self.config.log_groups, self.config.update.std_norm)
            self.board.show(step, shown)
            self.board.log(step, metrics)
        if p.step % self.config.save_every == 0 or self.finished() is not None:
            with clock("save"):
                self._save()
        self.watcher.step(p.step, metrics)

    def _evaluate(self) -> Accuracy:
        """Measure the policy on the held-out problems, and keep its model if none before it was better."""
        result = accuracy(self.learner.sample, self.held_out, self.config, self.progress.step)
        found = {"step": self.progress.step, "mean": result.mean, "stderr": result.stderr} | result.parts
        before = [evaluation["mean"] for evaluation in self.progress.evaluations]
        if self.config.keep_best and before and result.mean > max(before):  # the first is of the start model
            # A kill that leaves none comes before this step is saved: the step runs again, and so does this.
            with atomic.renewing(self.folder.best) as part:
                self.learner.export(part)
                write_atomically(part / "best.json", json.dumps(found) + "\n")
        self.progress.tokens_eval += result.tokens
        self.progress.evaluations.append(found)
        return result

    def _save(self) -> None:
        """Write a checkpoint. What it claims to have happened, ledger and metrics, is on the disk before it gets its name."""
        keep = self.config.keep_checkpoints
        with (
            ThreadPoolExecutor(1, thread_name_prefix="tossup-metrics") as beside,
            checkpoint.writing(self.folder.checkpoints, self.progress.step, keep) as part,
        ):
            synced = beside.submit(self.metrics.sync)
            state = {
                "sampler": {name: torch.as_tensor(array) for name, array in self.sampler.state().items()},
                "pending": json.dumps(self.pending.state()),
                "progress": json.dumps(asdict(self.progress)),
            }
            checkpoint.write_state(part, state | self.learner.write_checkpoint(part))
            self.ledger.settle()
            synced.result()
        self.saved = self.progress.step

    def stop(self, told: str) -> None:
        """Save, and end on every rank as by Ctrl-C.

        Raises:
            KeyboardInterrupt: always.
        """
        if self.saved != self.progress.step:
            self._save()
        self.watcher.note(f"told to stop ({told}): saved after step {self.progress.step}")
        self.learner.interrupt()

    def finish(self, reason: str) -> dict[str, Any]:
        """Evaluate, give the waiting groups their fate, write model, pool and summary."""
        p = self.progress
        if self.held_out and p.evaluations[-1]["step"] != p.step:
            self._evaluate()
        surplus = self.pending.flush()
        if surplus:
            self.ledger.append(p.step, surplus)
        self.learner.export(self.folder.model)
        atomic.sync_all(self.folder.model)
        policy_name = f"{self.folder.root.name}@{p.step}"
        learned(self.pool, self.ledger.scan(), policy_name).write(self.folder.pool)
        lists = watched(self.sampler, self.pool.ids)
        write_atomically(self.folder.watched, json.dumps(lists, indent=1, ensure_ascii=False) + "\n")
        p.seconds = time.perf_counter() - self.started
        result = summary(self.ledger, asdict(p), reason) | {
            "watched": {name: len(ids) for name, ids in lists.items()},
            "run": str(self.folder.root),
        }
        write_atomically(self.folder.summary, json.dumps(result, indent=2) + "\n")
        if (warning := nothing_trained(result["tokens"])) is not None:
            self.watcher.note(warning)
        return result


class Waves:
    """The waves of one step: generates and judges a group for each draw."""

    def __init__(self, run: Run) -> None:
        self.loop = run
        self.groups: list[Group] = []
        self.count = 0

    def run(self, draws: list[Draw]) -> list[Group]:
        """One group a draw, in order."""
        run, step = self.loop, self.loop.progress.step
        with run.clock("generate"):
            groups, seconds = run.learner.sample(
                [run.pool[draw.index] for draw in draws],
                run.config.rollout,
                group_size=run.config.rollout.group_size,
                seed=stream(run.config.seed, WAVE_STREAM, step, self.count),
                policy_step=step,
                first_id=run.progress.groups + len(self.groups),
                drawn_by=[draw.by for draw in draws],
            )
            run.clock.move(seconds.verify, to="verify")
        self.count += 1
        self.groups += groups
        return groups
