"""The configuration: what is unknown or does not fit is an error that helps; what is written reads back the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tossup.engine.config import TrainConfig, conflicts, digest, load, to_toml
from tossup.engine.measure_config import CurateConfig
from tossup.engine.section import fields
from tossup.engine.update_config import PRESETS
from tossup.records import TossupError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_overrides_lie_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, 'model = "m"\n[update]\nlr = 1e-4\nclip_low = 0.1\n')
    config = load(TrainConfig, path, {"update.lr": "3e-5", "rollout.group_size": "4", "curriculum.refill": True})
    assert (config.model, config.update.lr, config.update.clip_low, config.update.clip_high) == ("m", 3e-5, 0.1, 0.2)
    assert config.rollout.group_size == 4
    assert config.curriculum.refill is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[update]\nlearning_rate = 1\n", "unknown setting update.learning_rate"),
        ("[update]\nlrr = 1\n", "did you mean update.lr"),
        ("group_size = 4\n", "did you mean rollout.group_size"),
        ("[rollout]\ngroup_size = 1\n", "rollout.group_size"),
        ("[rollout]\ntemperature = 0\n", "rollout.temperature"),
        ("[rollout]\ntop_p = 0.9\n", "unknown setting rollout.top_p"),
        ("steps = 'many'\n", "steps"),
        ("steps = \n", "cannot be read as TOML"),
        ("[update]\nlr = nan\n", "update.lr"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TossupError, match=says.replace(".", r"\.")):
        load(TrainConfig, write(tmp_path, text))


def test_the_presets_are_what_their_papers_and_docs_say() -> None:
    """The table of docs/train.md, and the papers' clip ranges."""
    assert PRESETS == {
        "dr_grpo": {"update.std_norm": False, "update.aggregate": "constant"},
        "dapo": {
            "update.clip_high": 0.28,  # the lower bound stays at 0.2
            "update.aggregate": "token",
            "update.overlong": 0.2,  # 4,096 of 20,480 tokens
            "rollout.truncated": "exclude",
            "curriculum.refill": True,
        },
        "gspo": {"update.objective": "gspo", "update.clip_low": 0.0003, "update.clip_high": 0.0004},
        "cispo": {
            "update.objective": "cispo",
            "update.aggregate": "token",
            "update.clip_low": 1.0,  # a weight is never below 0, so there is no lower bound
            "update.clip_high": 4.0,  # a weight of 5 at most
        },
    }
    assert (TrainConfig().update.clip_low, TrainConfig().update.clip_high) == (0.2, 0.2)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_changes_the_defaults_and_yields_to_what_is_said(tmp_path: Path, name: str) -> None:
    for dotted, value in PRESETS[name].items():
        section, leaf = dotted.split(".")
        assert getattr(getattr(load(TrainConfig, None, {"preset": name}), section), leaf) == value
        assert getattr(getattr(TrainConfig(), section), leaf) != value
    said = {"curriculum.refill": False, "update.objective": "grpo", "update.clip_high": 0.5, "update.std_norm": True}
    config = load(TrainConfig, None, {"preset": name} | said)
    assert all(getattr(getattr(config, k.split(".")[0]), k.split(".")[1]) == v for k, v in said.items())
    assert load(TrainConfig, write(tmp_path, to_toml(config))) == config


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="no recipe"):
        load(TrainConfig, tmp_path / "none.toml")


def test_a_setting_where_a_table_belongs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="update"):
        load(TrainConfig, write(tmp_path, "update = 3\n"), {"update.lr": "1"})


@pytest.mark.parametrize("config", [TrainConfig(seed=7), CurateConfig(pool="p.jsonl", keep="0.1..0.9")])
def test_toml_reads_back_the_same(tmp_path: Path, config: TrainConfig | CurateConfig) -> None:
    assert load(type(config), write(tmp_path, to_toml(config))) == config


def test_only_what_shapes_the_run_makes_another_run() -> None:
    a = TrainConfig()
    assert conflicts(a, TrainConfig(steps=999, out="elsewhere")) == []
    assert digest(a) == digest(TrainConfig(steps=999, out="elsewhere"))
    b = TrainConfig(seed=1)
    assert conflicts(a, b) == ["seed: 0 here, 1 there"]
    assert digest(a) != digest(b)


def test_a_setting_that_a_later_version_adds_names_no_other_run(tmp_path: Path) -> None:
    class Later(TrainConfig):
        added: int = 3

    before = TrainConfig(seed=4)
    assert digest(Later(seed=4)) == digest(before)
    assert digest(Later(seed=4, added=5)) != digest(before)
    assert conflicts(Later(seed=4), load(Later, write(tmp_path, to_toml(before)))) == []


def test_every_field_says_what_it_is() -> None:
    for name, info in fields(TrainConfig):
        assert info.description, name


def test_a_held_out_pool_that_is_named_twice_is_refused() -> None:
    assert load(TrainConfig, None, {"eval_pool": ["a.jsonl", "", "b.jsonl", ""]}).eval_pool == ("a.jsonl", "b.jsonl")
    with pytest.raises(TossupError, match=r"eval_pool: a\.jsonl is named twice.*name it once"):
        load(TrainConfig, None, {"eval_pool": ["a.jsonl", "b.jsonl", "a.jsonl"]})
