"""The training loop.

One step, as in the paper (arXiv:2402.03300, section 4.1), with the curriculum around it:

    draws  = sampler.choose(n)                    toward the toss-ups
    groups = sample_groups(draws)                 G answers each from the current policy, judged
    sampler.observe(groups)                       every group, also those that will not train
    kept   = the informative groups               degenerate groups leave with their fate
    update(kept)                                  nothing of the others is in the loss or its denominator
    ledger, metrics, checkpoint                   in this order; the checkpoint commits the step

A kill at any instant loses the step in flight: on resume the ledger and the metrics are cut back to the checkpoint, and
the step runs again from the same state with the same seeds, so it gives the same answers, rewards and weights.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from tossup.curriculum.batch import Batch, BatchRule, Pending, collect
from tossup.curriculum.ledger import Ledger
from tossup.curriculum.sampler import Draw
from tossup.engine import checkpoint
from tossup.engine.completions import completions
from tossup.engine.config import TrainConfig
from tossup.engine.dashboards import Dashboard, NoDashboard, open_dashboard
from tossup.engine.evaluate import Accuracy, accuracy
from tossup.engine.folder import Metrics, RunFolder, default_root, write_atomically
from tossup.engine.inputs import Problems, of_model
from tossup.engine.metrics import check_tokens, step_metrics, summary
from tossup.engine.policy import export, load, set_threads
from tossup.engine.pools import learned, tags
from tossup.engine.rollouts import sample_groups, stream
from tossup.engine.samplers import make_sampler, watched
from tossup.engine.step import update
from tossup.records import Group, tokens

WAVE_STREAM = 1
"""Keeps the seeds of training waves apart from those of evaluation (`evaluate.EVAL_STREAM`)."""


class Watcher(Protocol):
    """Whoever looks on: the command line, a notebook, a test."""

    def note(self, text: str) -> None:
        """Something worth a line: where the run lies, that it resumes, how accurate the start model is."""

    def generated(self, answers: int) -> None:
        """So many answers have just been finished."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done and saved."""


@dataclass
class Progress:
    """The run's counters; part of every checkpoint."""

    step: int = 0
    groups: int = 0
    tokens_generated: int = 0
    tokens_eval: int = 0
    seconds: float = 0.0
    seconds_generate: float = 0.0
    seconds_verify: float = 0.0
    seconds_update: float = 0.0
    evaluations: list[dict[str, float]] = field(default_factory=list)
    ended_by: str = ""


def train(config: TrainConfig, watcher: Watcher) -> dict[str, Any]:
    """Train, or go on with the run that the folder holds, and return its summary (also `summary.json`).

    Raises:
        TossupError: the model, the pool or the folder cannot be used; nothing that was saved is lost.
    """
    folder = RunFolder(Path(config.out) if config.out else default_root(config))
    problems = Problems.of(config)
    with folder.held():
        folder.start_or_resume(config, problems.fingerprints | of_model(config.model))
        run = Run(config, folder, watcher, problems)
        run.resume()
        if (done := run.result()) is not None:
            return done
        run.cut_back()
        with run.dashboard():
            run.evaluate_at_start()
            while (reason := run.finished()) is None:
                run.one_step()
            return run.finish(reason)


class Run:
    """Everything one run holds in memory."""

    def __init__(self, config: TrainConfig, folder: RunFolder, watcher: Watcher, problems: Problems) -> None:
        self.config, self.folder, self.watcher = config, folder, watcher
        self.pool, self.held_out = problems.pool, problems.held_out
        self.policy = load(config.model, config.device, config.dtype)
        set_threads(self.policy, config.threads)
        self.ref = load(config.model, config.device, config.dtype) if config.update.kl_beta > 0 else None
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
        self.optimizer = torch.optim.AdamW(
            self.policy.model.parameters(),
            lr=config.update.lr,
            betas=(config.update.beta1, config.update.beta2),
            weight_decay=config.update.weight_decay,
            fused=True,
        )
        self.ledger = Ledger(folder.ledger, folder.root.name, keep_text=config.save_text)
        self.metrics = Metrics(folder.metrics)
        self.board: Dashboard = NoDashboard()
        self.progress = Progress()
        self.started = time.perf_counter()

    def resume(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        newest = checkpoint.latest(self.folder.checkpoints)
        if newest is not None:
            state = checkpoint.read(newest, self.policy.device)
            self.policy.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.sampler.restore({name: tensor.cpu().numpy() for name, tensor in state["sampler"].items()})
            self.pending.restore(json.loads(state["pending"]))
            self.progress = Progress(**json.loads(state["progress"]))
            self.watcher.note(f"resuming {self.folder.root} after step {self.progress.step}")
        else:
            self.watcher.note(f"run folder {self.folder.root}")
        self.started -= self.progress.seconds

    def cut_back(self) -> None:
        """Drop what lies beyond the checkpoint from the ledger and the metrics.

        Raises:
            TossupError: a part of the ledger is damaged or gone, so that its tokens no longer add up.
        """
        self.ledger.truncate(self.progress.step)
        waiting = sum(tokens(group.rollouts) for _, group in self.pending.waiting)
        check_tokens(self.ledger, self.progress.tokens_generated - waiting)
        self.metrics.keep_before(self.progress.step)

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
        """Choose, generate, judge, observe, update, record, save."""
        step, p = self.progress.step, self.progress
        begun = time.perf_counter()
        waves = Waves(self)
        batch = collect(self.sampler, waves.run, step, self.rule, self.pending)
        updating = time.perf_counter()
        figures = self._update(batch)
        update_seconds = time.perf_counter() - updating
        self.ledger.append(step, batch.entries)
        p.step, p.groups = step + 1, p.groups + batch.generated_groups
        p.tokens_generated += batch.generated_tokens
        p.seconds_generate += waves.generate_seconds
        p.seconds_verify += waves.verify_seconds
        p.seconds_update += update_seconds
        if batch.nothing_left is not None:
            p.ended_by = f"nothing left to learn: {batch.nothing_left.value}"
        metrics = step_metrics(batch, waves.groups) | figures
        metrics |= {"time/generate": waves.generate_seconds, "time/verify": waves.verify_seconds}
        metrics |= {"time/update": update_seconds, "time/step": time.perf_counter() - begun}
        every = self.config.eval.every
        if self.held_out and every and p.step % every == 0:
            result = self._evaluate()
            metrics |= {"eval/accuracy": result.mean, "eval/stderr": result.stderr}
        p.seconds = time.perf_counter() - self.started
        metrics |= {"tokens/total": p.tokens_generated, "seconds": p.seconds}
        self.metrics.append({"step": step} | metrics)
        self.board.show(step, completions(step, batch.entries, self.config.log_groups, self.config.update.std_norm))
        self.board.log(step, metrics)
        if p.step % self.config.save_every == 0 or self.finished() is not None:
            self._save()
        self.watcher.step(p.step, metrics)

    def _update(self, batch: Batch) -> dict[str, float]:
        if not batch.kept:
            return {}
        warmup = self.config.update.warmup_steps
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.update.lr * min(1.0, (batch.step + 1) / (warmup + 1))
        return update(self.policy, self.optimizer, batch.kept, self.config, self.ref)

    def _evaluate(self) -> Accuracy:
        result = accuracy(self.policy, self.held_out, self.config)
        self.progress.tokens_eval += result.tokens
        self.progress.evaluations.append({"step": self.progress.step, "mean": result.mean, "stderr": result.stderr})
        return result

    def _save(self) -> None:
        state = {
            "model": self.policy.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": {name: torch.as_tensor(array) for name, array in self.sampler.state().items()},
            "pending": json.dumps(self.pending.state()),
            "progress": json.dumps(asdict(self.progress)),
        }
        checkpoint.save(self.folder.checkpoints, self.progress.step, state, self.config.keep_checkpoints)

    def finish(self, reason: str) -> dict[str, Any]:
        """Evaluate, give the waiting groups their fate, write model, pool and summary."""
        p = self.progress
        if self.held_out and p.evaluations[-1]["step"] != p.step:
            self._evaluate()
        surplus = self.pending.flush()
        if surplus:
            self.ledger.append(p.step, surplus)
        export(self.policy, self.folder.model)
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
        return result


class Waves:
    """The waves of one step: generates and judges a group for each draw, and adds up where the time went."""

    def __init__(self, run: Run) -> None:
        self.run_ = run
        self.groups: list[Group] = []
        self.count = 0
        self.generate_seconds = 0.0
        self.verify_seconds = 0.0

    def run(self, draws: list[Draw]) -> list[Group]:
        """One group a draw, in order."""
        run, step = self.run_, self.run_.progress.step
        groups, seconds = sample_groups(
            run.policy,
            [run.pool[draw.index] for draw in draws],
            run.config.rollout,
            group_size=run.config.rollout.group_size,
            seed=stream(run.config.seed, WAVE_STREAM, step, self.count),
            policy_step=step,
            first_id=run.progress.groups + len(self.groups),
            drawn_by=[draw.by for draw in draws],
            progress=run.watcher.generated,
        )
        self.count += 1
        self.groups += groups
        self.generate_seconds += seconds.generate
        self.verify_seconds += seconds.verify
        return groups
