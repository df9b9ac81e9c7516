"""A run rests on the content of its pool and model, not on their names; a folder that holds no work gives way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tossup.curriculum.pool import Pool, read_pool
from tossup.engine import arithmetic
from tossup.engine.config import TrainConfig, load
from tossup.engine.curate import curate
from tossup.engine.evaluate import evaluate
from tossup.engine.inputs import of_model, of_pool
from tossup.engine.measure_config import CurateConfig, EvaluateConfig
from tossup.engine.policy import load as load_policy
from tossup.engine.policy import model_source
from tossup.engine.pools import open_pool
from tossup.engine.prompts import encode_prompt
from tossup.engine.train import train
from tossup.records import Problem, TossupError

SMALL = {"steps": 2, "rollout.problems_per_step": 2, "rollout.group_size": 2, "rollout.max_new_tokens": 8, "threads": 1}
MEASURE = {"samples": 2, "sampling.max_new_tokens": 8, "threads": 1}


class Silent:
    def note(self, text: str) -> None:
        pass

    def generated(self, answers: int) -> None:
        pass

    def step(self, step: int, metrics: object) -> None:
        pass

    def started(self, problems: int, done: int) -> None:
        self.done = done

    def measured(self, problems: int, tokens: int) -> None:
        pass


def run(out: Path, **changes: Any) -> dict[str, Any]:
    return train(load(TrainConfig, None, SMALL | {"out": str(out)} | changes), Silent())


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    Pool.of(arithmetic.pool()[:6]).write(tmp_path / "pool.jsonl")
    return tmp_path / "pool.jsonl"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(arithmetic.checkpoint_path(), tmp_path / "tiny")
    return tmp_path / "tiny"


def change_weights(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    save_file({name: w + 1e-4 for name, w in weights.items()}, model / "model.safetensors", {"format": "pt"})


def change_reference(pool: Path) -> None:
    rows = [json.loads(line) for line in pool.read_text().splitlines()]
    rows[2]["reference"] = "another"
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_does_not_go_on_with_another_pool_or_model(tmp_path: Path, pool: Path, model: Path) -> None:
    names = {"pool": str(pool), "model": str(model)}
    run(tmp_path / "run", **names)
    change_reference(pool)
    with pytest.raises(TossupError, match=r"pool .*pool\.jsonl is no longer what"):
        run(tmp_path / "run", steps=3, **names)
    change_weights(model)
    with pytest.raises(TossupError, match=r"pool\.jsonl and model .*tiny is no longer"):
        run(tmp_path / "run", steps=3, **names)


def test_a_measurement_does_not_mix_two_models(tmp_path: Path, pool: Path, model: Path) -> None:
    config = load(
        CurateConfig, None, MEASURE | {"pool": str(pool), "model": str(model), "out": str(tmp_path / "m.jsonl")}
    )
    curate(config, Silent())
    curate(config, Silent())
    change_weights(model)
    with pytest.raises(TossupError, match="choose another --out"):
        curate(config, Silent())


def test_a_model_that_was_trained_further_is_evaluated_anew(
    tmp_path: Path, pool: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(EvaluateConfig, None, MEASURE | {"pool": str(pool), "model": str(model)})
    first, second = Silent(), Silent()
    before = evaluate(config, first)["run"]
    assert evaluate(config, second)["run"] == before
    assert second.done == 6
    change_weights(model)
    assert evaluate(config, second)["run"] != before
    assert second.done == 0


def test_a_pool_that_was_measured_again_with_the_same_counts_is_the_same(tmp_path: Path, pool: Path) -> None:
    config = load(CurateConfig, None, MEASURE | {"pool": str(pool), "out": str(tmp_path / "m.parquet")})
    curate(config, Silent())
    measured = read_pool(tmp_path / "m.parquet")
    later = measured.with_counts(attempts=measured.attempts, correct=measured.correct, measured_at="later")
    assert of_pool(measured, counts=True) == of_pool(later, counts=True)
    assert of_pool(measured, counts=False) == of_pool(read_pool(pool), counts=False)
    assert of_pool(measured, counts=True) != of_pool(read_pool(pool), counts=True)
    assert of_pool(measured, counts=False) != of_pool(measured.take([1, 0, 2, 3, 4, 5]), counts=False)


def test_a_model_card_is_no_part_of_the_model(model: Path) -> None:
    before = of_model(str(model))
    (model / "README.md").write_text("# A card")
    assert of_model(str(model)) == before
    change_weights(model)
    assert of_model(str(model)) != before
    assert of_model("someone/something") == {}


def test_a_folder_without_work_gives_way_to_mended_settings(tmp_path: Path, pool: Path) -> None:
    with pytest.raises(TossupError, match="no verifier"):
        run(tmp_path / "run", pool=str(pool), verifier="mth")
    assert run(tmp_path / "run", pool=str(pool))["steps"] == 2
    with pytest.raises(TossupError, match=r"pool: .* here, .* there"):
        run(tmp_path / "run")


@pytest.mark.parametrize("damage", ["", "[1]", '{"pool": '])
def test_damaged_fingerprints_are_said(tmp_path: Path, pool: Path, damage: str) -> None:
    run(tmp_path / "run", pool=str(pool))
    (tmp_path / "run" / "inputs.json").write_text(damage)
    with pytest.raises(TossupError, match=r"inputs\.json is damaged.*delete it to go on"):
        run(tmp_path / "run", pool=str(pool))
    (tmp_path / "run" / "inputs.json").unlink()
    assert run(tmp_path / "run", pool=str(pool))["steps"] == 2


def test_a_folder_of_another_command_is_named(tmp_path: Path, pool: Path) -> None:
    run(tmp_path / "run", pool=str(pool))
    config = load(EvaluateConfig, None, MEASURE | {"pool": str(pool), "out": str(tmp_path / "run")})
    with pytest.raises(TossupError, match=r"run/config\.toml does not read as the settings of this command"):
        evaluate(config, Silent())


def test_a_run_is_a_model_once_it_has_written_one(tmp_path: Path, pool: Path) -> None:
    run(tmp_path / "run", pool=str(pool))
    assert model_source(str(tmp_path / "run")) == str(tmp_path / "run" / "model")
    assert run(tmp_path / "next", pool=str(pool), model=str(tmp_path / "run"))["steps"] == 2
    shutil.rmtree(tmp_path / "run" / "model")
    with pytest.raises(TossupError, match="has not written its model yet"):
        model_source(str(tmp_path / "run"))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, pool: Path) -> None:
    for config in (
        load(CurateConfig, None, MEASURE | {"pool": str(pool), "out": str(pool / "m.jsonl")}),
        load(EvaluateConfig, None, MEASURE | {"pool": str(pool), "out": str(pool / "e")}),
    ):
        with pytest.raises(TossupError, match="choose another --out"):
            (curate if isinstance(config, CurateConfig) else evaluate)(config, Silent())  # type: ignore[operator]


@pytest.mark.parametrize("damage", ["weights", "config"])
def test_a_damaged_model_is_said(model: Path, damage: str) -> None:
    path = model / {"weights": "model.safetensors", "config": "config.json"}[damage]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TossupError, match="cannot be loaded"):
        load_policy(str(model))


@pytest.mark.parametrize("device", ["meta", "mps", "nonsense", *([] if torch.cuda.is_available() else ["cuda"])])
def test_a_device_that_is_not_there_is_said(device: str) -> None:
    with pytest.raises(TossupError, match="device"):
        load_policy("builtin:arithmetic", device)


def test_columns_are_mapped_by_name(tmp_path: Path) -> None:
    path = tmp_path / "foreign.jsonl"
    path.write_text('{"q": "a1+a1=", "a": "a2"}\n')
    assert open_pool(str(path), ["prompt=q", "reference=a"])[0].reference == "a2"
    with pytest.raises(TossupError, match="--map prompt=COLUMN --map reference=COLUMN"):
        open_pool(str(path))
    with pytest.raises(TossupError, match="got 'prompt'"):
        open_pool(str(path), ["prompt"])


@pytest.mark.parametrize(("attempts", "correct"), [(4, 9), (-1, -1), (4, -1)])
def test_counts_that_cannot_be_are_said(tmp_path: Path, attempts: int, correct: int) -> None:
    path = tmp_path / "pool.jsonl"
    row = {"id": "x", "prompt": "a1+a1=", "reference": "a2", "attempts": attempts, "correct": correct}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(TossupError, match=f"x has {correct} correct of {attempts}"):
        open_pool(str(path))
    assert open_pool(str(path), ["attempts=", "correct="]).attempts.tolist() == [0]


def test_a_chat_that_the_template_refuses_is_said() -> None:
    policy = load_policy("builtin:arithmetic")
    policy.tokenizer.chat_template = "{{ raise_exception('no system messages') }}"
    with pytest.raises(TossupError, match=r"problem p: .*no system messages"):
        encode_prompt(policy, Problem("p", ({"role": "system", "content": "x"},), "1"))


THINKS = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if enable_thinking is false %}b{% endif %}{{ style }}"


def test_options_reach_the_chat_template() -> None:
    policy, problem = load_policy("builtin:arithmetic"), Problem("p", "a1=", "1", "exact", "d")

    def shown(*template: str) -> str:
        return str(policy.tokenizer.decode(encode_prompt(policy, problem, "none", template)))

    with pytest.raises(TossupError, match=r"enable_thinking=false.* tokenizer has none"):
        shown("enable_thinking=false")
    policy.tokenizer.chat_template = THINKS
    assert shown() == shown("enable_thinking=true") == "a1="
    assert shown("enable_thinking=false") == "a1=b"
    assert shown("enable_thinking=false", "style=a+") == "a1=ba+"
    for bad in ("enable_thinking", "enable_thinkin=false", "thinking_budget=3"):
        with pytest.raises(TossupError, match=f"NAME=VALUE.*{bad}"):
            shown(bad)
