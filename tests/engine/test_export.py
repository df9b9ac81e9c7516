"""What a run leaves behind: its best model, an adapter, and a folder for others with a card that tells the truth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tossup.cli import main
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load
from tossup.engine.evaluate import Accuracy
from tossup.engine.export import export_run
from tossup.engine.policy import load as load_policy
from tossup.engine.progress import Silent
from tossup.engine.train import train
from tossup.records import TossupError

SMALL = {
    "steps": 4,
    "rollout.problems_per_step": 4,
    "rollout.group_size": 4,
    "eval.problems": 6,
    "eval.samples": 2,
    "eval.every": 1,
    "threads": 1,
    "save_every": 1,
}


def run(out: Path, **changes: Any) -> dict[str, Any]:
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return train(load(TrainConfig, recipe_path(), SMALL | {"out": str(out)} | changes), Silent())


SCORES = {0: 0.5, 1: 0.4, 2: 0.9, 3: 0.7, 4: 0.9}
"""By step; the fourth only equals the best, so the second stays."""


def scored(monkeypatch: pytest.MonkeyPatch, scores: Mapping[int, float]) -> None:
    def accuracy(sample: Any, problems: Any, config: Any, policy_step: int) -> Accuracy:
        return Accuracy(scores[policy_step], 0.01, 0, 0, {})

    monkeypatch.setattr("tossup.engine.train.accuracy", accuracy)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose evaluations come out as SCORES says."""
    scored(monkeypatch, SCORES)
    run(tmp_path / "run", keep_checkpoints=9)
    return tmp_path / "run"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_model_of_the_best_evaluation_is_kept(judged: Path) -> None:
    summary = json.loads((judged / "summary.json").read_text())
    assert summary["best"] == {"step": 2, "mean": 0.9, "stderr": 0.01}
    assert json.loads((judged / "best" / "best.json").read_text()) == summary["best"]
    state = torch.load(judged / "checkpoints" / "step-00000002" / "state.pt", weights_only=True)["tensors"]
    for name, tensor in weights(judged / "best").items():
        assert torch.equal(tensor, state[f"weight/{name}"])
    moved = [not torch.equal(t, weights(judged / "model")[name]) for name, t in weights(judged / "best").items()]
    assert any(moved)
    assert not list(judged.glob(".part-*"))
    assert load_policy(str(judged / "best"), "cpu").tokenizer("a1+a1=")["input_ids"]


@pytest.mark.parametrize(
    ("scores", "settings"), [({0: 0.9} | dict.fromkeys(range(1, 5), 0.5), {}), (SCORES, {"keep_best": False})]
)
def test_no_best_model_where_none_beat_the_start_or_none_was_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: dict[int, float], settings: dict[str, Any]
) -> None:
    scored(monkeypatch, scores)
    run(tmp_path / "run", **settings)
    assert not (tmp_path / "run" / "best").exists()
    with pytest.raises(TossupError, match="no evaluation was better"):
        export_run(tmp_path / "run", tmp_path / "out", best=True)


def test_a_run_killed_before_it_saved_finds_its_best_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, SCORES)
    run(tmp_path / "whole")

    class Killed(BaseException):
        pass

    def die(self: Any) -> None:
        if self.progress.step == 2:
            raise Killed

    with monkeypatch.context() as patch:
        save = "tossup.engine.train.Run._save"
        from tossup.engine.train import Run

        real = Run._save
        patch.setattr(save, lambda self: (die(self), real(self)))
        with pytest.raises(Killed):
            run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "best" / "best.json").read_text())["step"] == 2
    run(tmp_path / "run")
    for part in ("best", "model"):
        a, b = weights(tmp_path / "run" / part), weights(tmp_path / "whole" / part)
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_an_exported_model_loads_anywhere_and_its_card_says_what_the_run_was(judged: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "out"
    facts = export_run(judged, out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    assert all(
        torch.equal(p, weights(judged / "model")[name])
        for name, p in model.state_dict().items()
        if name != "lm_head.weight"
    )
    tokenizer, own = AutoTokenizer.from_pretrained(out), AutoTokenizer.from_pretrained(judged / "model")
    assert tokenizer("a1+a2=")["input_ids"] == own("a1+a2=")["input_ids"]
    assert tokenizer.chat_template == own.chat_template
    card = (out / "README.md").read_text()
    summary = json.loads((judged / "summary.json").read_text())
    inputs = json.loads((judged / "inputs.json").read_text())
    for said in (
        inputs["pool builtin:arithmetic/train"],
        inputs["eval_pool builtin:arithmetic/heldout"],
        "| sampler | tossup |",
        "| accuracy before | 0.500 |",
        "0.900 ± 0.010",
        f"{summary['tokens_generated']:,}",
        f"{summary['wasted_share']:.1%} of {summary['groups']}",
        f"trained {summary['tokens']['trained']:,}",
        (judged / "config.toml").read_text().strip(),
    ):
        assert said in card
    assert str(tmp_path) not in card.replace((judged / "config.toml").read_text().strip(), "")
    assert facts["accuracy"]["step"] == 4
    best = export_run(judged, tmp_path / "best", best=True)
    assert best["accuracy"] == {"step": 2, "mean": 0.9, "stderr": 0.01}
    assert "flatters" in (tmp_path / "best" / "README.md").read_text()
    assert not (tmp_path / "best" / "best.json").exists()


def test_what_cannot_be_exported_is_said(judged: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(TossupError, match="there already"):
        export_run(judged, tmp_path / "full")
    with pytest.raises(TossupError, match="no run"):
        export_run(tmp_path, tmp_path / "out")
    with pytest.raises(TossupError, match="whole model"):
        export_run(judged, tmp_path / "out", adapter=True)
    (judged / "summary.json").unlink()
    with pytest.raises(TossupError, match="not come to its end"):
        export_run(judged, tmp_path / "out")
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_the_command(judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["export", str(judged), str(tmp_path / "out"), "--best", "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["accuracy"]["step"] == 2
    assert (tmp_path / "out" / "config.json").is_file()


LORA = {"lora__rank": 4, "update__lr": 5e-3, "update__kl_beta": 0.01, "eval__every": 2}


def test_a_lora_run_resumes_exactly_and_is_exported_merged_or_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(whole, **LORA)
    run(cut, **LORA, steps=2)
    run(cut, **LORA)
    a, b = (load_file(folder / "model" / "adapter_model.safetensors") for folder in (whole, cut))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(t.abs().sum() > 0 for name, t in a.items() if "lora_B" in name)
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    kls = [line["update/kl"] for line in lines if "update/kl" in line]  # a step of degenerate groups updates nothing
    assert kls[0] == 0 < kls[-1]
    state = torch.load(whole / "checkpoints" / "step-00000004" / "state.pt", weights_only=True)["tensors"]
    assert all(".lora_" in name for name in state)
    merged, start = load_policy(str(whole), "cpu"), load_policy("builtin:arithmetic", "cpu")
    export_run(whole, tmp_path / "merged")
    export_run(whole, tmp_path / "adapter", adapter=True)
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    plain = load_policy(str(tmp_path / "merged"), "cpu")
    for (name, x), (_, y), (_, z) in zip(merged.weights(), plain.weights(), start.weights(), strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z) == ("proj" not in name)
