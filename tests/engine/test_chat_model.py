"""A model that is talked to stays one: the chat template is in the run's model and in what is exported of it."""

from __future__ import annotations

from pathlib import Path

from tossup.engine.config import TrainConfig, load
from tossup.engine.export import export_run
from tossup.engine.policy import load as load_policy
from tossup.engine.progress import Silent
from tossup.engine.train import train

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def test_the_chat_template_of_the_start_model_is_exported(tmp_path: Path) -> None:
    start = load_policy("builtin:arithmetic", "cpu")
    start.tokenizer.chat_template = TEMPLATE
    start.model.save_pretrained(tmp_path / "start")
    start.tokenizer.save_pretrained(tmp_path / "start")
    small = {"steps": 1, "rollout.problems_per_step": 2, "rollout.group_size": 2, "rollout.max_new_tokens": 4}
    settings = small | {"model": str(tmp_path / "start"), "out": str(tmp_path / "run"), "threads": 1}
    train(load(TrainConfig, None, settings | {"rollout.instruction": "none"}), Silent())
    export_run(tmp_path / "run", tmp_path / "out")
    for folder in (tmp_path / "run" / "model", tmp_path / "out"):
        tokenizer = load_policy(str(folder), "cpu").tokenizer
        assert tokenizer.chat_template == TEMPLATE
        asked = [{"role": "user", "content": "a1+a1="}]
        assert tokenizer.apply_chat_template(asked, tokenize=False) == "a1+a1="
