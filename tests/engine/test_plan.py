"""`tossup train --dry-run`: what it says of memory is what a run holds, and it does nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from small import make_group

from tossup.cli import app
from tossup.curriculum.pool import Pool
from tossup.engine import policy as models
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load
from tossup.engine.logps import recomputed
from tossup.engine.plan import activations, plan, skeleton
from tossup.engine.probe import decoder
from tossup.engine.progress import Silent
from tossup.engine.step import make_optimizer, update
from tossup.engine.train import train
from tossup.records import Problem, TossupError


def config(**changes: Any) -> TrainConfig:
    return load(TrainConfig, recipe_path(), {name.replace("__", "."): value for name, value in changes.items()})


def sizes(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("changes", [{}, {"lora__rank": 4}, {"update__kl_beta": 0.1}])
def test_what_stays_in_memory_is_what_a_run_holds(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = config(out=str(tmp_path / "run"), **changes)
    found = plan(settings)["memory"]
    policy = models.load(settings.model, adapter=settings.lora)
    ref = models.load(settings.model) if changes.get("update__kl_beta") else None
    optimizer = make_optimizer(policy, settings.update)
    update(policy, optimizer, [make_group("1001")], settings, ref)
    assert found["always: weights"] == sizes(policy.model.parameters())
    assert found["update: gradients"] == sizes(p.grad for p in policy.trainable().values())
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert found["always: moments of AdamW"] == sizes(moments)
    assert found.get("always: start model") == (sizes(ref.model.parameters()) if ref else None)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_counted_on_shapes_as_on_data(again: bool, dtype: str) -> None:
    """The bytes that autograd keeps of a real pass, but for the weights themselves."""
    settings = config(dtype=dtype)
    policy = models.load(settings.model, dtype=dtype)
    own = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage())
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t)
    with policy.autocast(), recomputed(policy.model, again), hooks:
        last = decoder(policy.model)(input_ids=torch.zeros(3, 40, dtype=torch.long), use_cache=False)
    real = sum(storage.nbytes() for key, storage in kept.items() if key not in own)
    assert last.last_hidden_state.requires_grad
    assert activations(skeleton(settings), 3, 40, again) == pytest.approx(real, rel=0.02)


def test_recomputing_and_smaller_passes_take_less() -> None:
    policy = skeleton(config())
    plain, again, half = (activations(policy, *args) for args in ((4, 64, False), (4, 64, True), (2, 64, False)))
    assert again < plain / 4
    assert half == pytest.approx(plain / 2, rel=0.05)


def test_the_prompt_is_shown_with_the_template_and_nothing_is_written(tmp_path: Path) -> None:
    policy = models.load("builtin:arithmetic")
    policy.tokenizer.chat_template = "{% for m in messages %}a{{ m['content'] }}={% endfor %}b"
    models.export(policy, tmp_path / "model")
    problems = [Problem(f"p{i}", f"a{i}+a1", "a2", "exact", "d") for i in range(3)]
    Pool.of([*problems, Problem("long", "a1+" * 20, "a2", "exact", "d")]).write(tmp_path / "pool.jsonl")
    model, pool = str(tmp_path / "model"), str(tmp_path / "pool.jsonl")
    before = sorted(tmp_path.rglob("*"))
    options = ["--model", model, "--pool", pool, "--out", str(tmp_path / "run"), "--max-new-tokens", "2000"]
    done = CliRunner().invoke(app, ["train", "--dry-run", "--json", *options])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["example"]["text"] == "aa0+a1=b"
    assert found["example"]["tokens"] == 8
    assert found["longest_prompt"] == 63
    assert found["without_room"] == 0.25
    assert found["settings"]["rollout"]["max_new_tokens"] == 2000
    shown = CliRunner().invoke(app, ["train", "--dry-run", *options])
    assert shown.exit_code == 0, shown.output
    for text in ("max_new_tokens = 2000", "aa0+a1=b", "63 tokens; the context holds 2,048", "25.0% of the prompts"):
        assert text in shown.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_is_there_is_gone_on_with_or_refused(tmp_path: Path) -> None:
    small = {"eval_pool": "", "rollout__problems_per_step": 4, "rollout__group_size": 4, "threads": 1, "save_every": 1}
    out = str(tmp_path / "run")
    train(config(out=out, steps=2, **small), Silent())
    assert plan(config(out=out, steps=9, **small))["steps_done"] == 2
    with pytest.raises(TossupError, match=r"other settings(.*\n)*.*update\.lr"):
        plan(config(out=out, steps=9, update__lr=1.0, **small))


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TossupError, match="empty"):
        plan(config(model=str(tmp_path / "empty")))


@pytest.mark.parametrize(
    ("name", "says"), [("maths", "did you mean 'math'"), ("json:nope", "does not load in a worker")]
)
def test_a_verifier_that_is_not_there_is_said(name: str, says: str) -> None:
    with pytest.raises(TossupError, match=says):
        plan(config(verifier=name))


def test_of_the_processes_of_torchrun_one_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, says in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        done = CliRunner().invoke(app, ["train", "--dry-run", "--json", "--device", "cpu"])
        assert done.exit_code == 0
        assert bool(done.output) is says
