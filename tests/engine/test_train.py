"""The loop on the built-in recipe: tokens add up, a killed run resumes as if nothing had happened, dead ends are said."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from tossup.curriculum import ledger
from tossup.curriculum.ledger import scan_ledger, scan_texts
from tossup.curriculum.pool import Pool, read_pool
from tossup.engine import checkpoint
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import TrainConfig, load
from tossup.engine.policy import load as load_policy
from tossup.engine.train import train
from tossup.records import Problem, TossupError

SMALL = {
    "steps": 6,
    "save_every": 1,
    "rollout.problems_per_step": 6,
    "rollout.group_size": 4,
    "eval.problems": 20,
    "eval.samples": 2,
    "eval.every": 3,
    "threads": 1,
}


class Silent:
    """Looks on and remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[dict[str, float]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def generated(self, answers: int) -> None:
        pass

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append(dict(metrics))


def config(out: Path, **changes: Any) -> TrainConfig:
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return load(TrainConfig, recipe_path(), SMALL | {"out": str(out)} | changes)


def rows(run: Path) -> pl.DataFrame:
    """The ledger without wall times and the run's name."""
    frame = scan_ledger(run / "ledger").drop("run", "generate_seconds", "verify_seconds").collect()
    return frame.sort("group", "sample")


def figures(run: Path) -> list[dict[str, float]]:
    """The metrics without wall times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/") and k != "seconds"} for line in lines]


def assert_same_run(a: Path, b: Path) -> None:
    assert rows(a).equals(rows(b))
    assert figures(a) == figures(b)
    weights_a, weights_b = (load_file(run / "model" / "model.safetensors") for run in (a, b))
    assert weights_a.keys() == weights_b.keys()
    for name in weights_a:
        torch.testing.assert_close(weights_a[name], weights_b[name], rtol=0, atol=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(config(out), Silent())
    return out


def test_every_generated_token_has_a_fate(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    ledger = rows(whole)
    assert sum(summary["tokens"].values()) == summary["tokens_generated"] == ledger["response_tokens"].sum()
    assert ledger.group_by("group", "sample").len()["len"].max() == 1
    by_step = {line["step"]: line for line in figures(whole)}
    assert len(by_step) == 6
    for step, line in by_step.items():
        fates = sum(
            v for k, v in line.items() if k.startswith("tokens/") and k not in ("tokens/generated", "tokens/total")
        )
        assert fates == line["tokens/generated"] == ledger.filter(pl.col("step") == step)["response_tokens"].sum()
        parts = ("effective", "too_easy", "too_hard", "unjudged")
        assert sum(line[f"rollout/{part}"] for part in parts) == pytest.approx(1)


def test_tokens_add_up_when_surplus_groups_wait(tmp_path: Path) -> None:
    run = tmp_path / "run"
    summary = train(config(run, curriculum__refill=True, curriculum__max_waves=3), Silent())
    assert sum(summary["tokens"].values()) == summary["tokens_generated"]
    assert summary["tokens_generated"] == rows(run)["response_tokens"].sum()
    kept = rows(run).filter(pl.col("fate") == "trained").group_by("step").agg(pl.col("group").n_unique())
    assert kept["group"].max() <= 6


def test_full_waves_refill_as_dapo_does(tmp_path: Path) -> None:
    """Whole waves of six until six groups are informative, and what is over does not wait for the next step."""
    watcher, run = Silent(), tmp_path / "run"
    settings = {"curriculum__refill": True, "curriculum__full_waves": True, "curriculum__max_age": 0}
    train(config(run, curriculum__sampler="uniform", eval_pool="", steps=4, **settings), watcher)
    generated = [metrics["rollout/groups"] for metrics in watcher.steps]
    assert all(groups % 6 == 0 for groups in generated)
    assert max(generated) > 6
    assert rows(run).group_by("step").len().sort("step")["len"].to_list() == [4 * groups for groups in generated]


def test_the_summary_and_the_folder_are_what_the_docs_say(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    for name in ("accuracy_before", "accuracy_after", "tokens_generated", "wasted_share", "seconds", "run"):
        assert summary[name] is not None
    assert summary["ended_by"] == "steps"
    lists = json.loads((whole / "watched.json").read_text())
    assert {name: len(ids) for name, ids in lists.items()} == summary["watched"]
    pool = read_pool(whole / "pool.parquet")
    ledger = rows(whole)
    assert int(pool.attempts.sum()) > 0
    for problem, attempts, right in zip(pool.ids, pool.attempts, pool.correct, strict=True):
        if attempts:
            last = ledger.filter(pl.col("problem") == problem)
            last = last.filter(pl.col("group") == last["group"].max())
            assert (attempts, right) == (last["reward"].count(), last["reward"].sum())


def test_the_same_command_shows_a_finished_run_and_more_steps_continue_it(whole: Path, tmp_path: Path) -> None:
    short = tmp_path / "run"
    train(config(short, steps=3), Silent())
    again = Silent()
    summary = train(config(short, steps=3), again)
    assert again.steps == []
    assert summary == json.loads((short / "summary.json").read_text())
    train(config(short), Silent())
    assert_same_run(short, whole)


def test_other_settings_do_not_mix_into_a_run(whole: Path) -> None:
    with pytest.raises(TossupError, match=r"other settings.*\n.*update\.lr"):
        train(config(whole, update__lr=1.0), Silent())


def run_command(out: Path, **changes: str) -> subprocess.Popen[bytes]:
    options = [f"--{name}={value}" for name, value in (SMALL | changes).items()]
    options = [option.replace("--eval.", "--eval-").replace("--rollout.", "--") for option in options]
    options = [option.replace("_", "-") for option in options]
    code = "import sys; from tossup.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "train", "--json", f"--out={out}", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def killed_at_random(out: Path, rng: random.Random) -> int:
    """SIGKILL at a random delay after a random part of the ledger appears; how often the run was not yet through."""
    kills = 0
    for parts in (1, 3, 5):
        process = run_command(out)
        begun = len(list((out / "ledger").glob("step-*.parquet"))) if out.exists() else 0
        while process.poll() is None and len(list(out.glob("ledger/step-*.parquet"))) < max(parts, begun):
            time.sleep(0.001)
        time.sleep(rng.random() * 0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    return kills


def test_a_run_killed_at_random_instants_equals_an_uninterrupted_one(whole: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    tries = (tmp_path / str(i) for i in range(10))  # on a busy machine a run can be through before it is killed
    out = next(out for out in tries if killed_at_random(out, rng) >= 2)
    output, errors = run_command(out).communicate()
    assert json.loads(output.splitlines()[-1])["run"] == str(out), errors.decode()
    assert_same_run(out, whole)


def interrupted(out: Path) -> bytes:
    """SIGINT once there is a checkpoint; what the run said then, or nothing where it was through by then."""
    process = run_command(out)
    while process.poll() is None and not list(out.glob("checkpoints/step-*")):
        time.sleep(0.005)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode in (130, 0), errors.decode()
    return errors if process.returncode else b""


def test_an_interrupt_leaves_a_run_that_resumes(whole: Path, tmp_path: Path) -> None:
    out, errors = next((out, said) for i in range(10) if (said := interrupted(out := tmp_path / str(i))))
    assert b"same command resumes" in errors
    assert b"Traceback" not in errors
    train(config(out), Silent())
    assert_same_run(out, whole)


def right_if_long(problem: Problem, response: str) -> bool:
    """Right with six or seven tokens: the built-in model's are characters, and one for the end."""
    return len(response) >= 5


def test_a_group_that_the_overlong_punishment_levels_is_no_trained_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    sampling = {"rollout__max_new_tokens": 7, "rollout__truncated": "judge", "rollout__temperature": 3.0}
    punished = {"update__overlong": 0.1, "verifier": "test_train:right_if_long"}  # the seventh token takes all reward
    train(config(tmp_path, steps=1, eval_pool="", rollout__problems_per_step=32, **sampling, **punished), Silent())
    earned = pl.col("reward") - (pl.col("response_tokens") == 7)
    by_group = rows(tmp_path).group_by("group").agg(pl.col("reward", "fate").unique(), earned.unique().alias("earned"))
    mixed = by_group.filter(pl.col("reward").list.len() > 1)
    kinds = {(len(earned) > 1, *fate) for earned, fate in mixed.select("earned", "fate").iter_rows()}
    assert kinds == {(False, "all_wrong"), (True, "trained")}
    trained = mixed.filter(pl.col("fate").list.contains("trained"))
    assert [line["rollout/kept_groups"] for line in figures(tmp_path)] == [trained.height]


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    from tossup.engine.folder import RunFolder

    with RunFolder(tmp_path / "run").held(), pytest.raises(TossupError, match="another process"):
        train(config(tmp_path / "run"), Silent())


@pytest.mark.parametrize(
    ("reference", "verifier", "says", "advises"),
    [
        ("never this", "exact", "all impossible", "take an easier pool"),
        ("anything", "test_train:always_right", "all solved", "take a harder pool"),
        ("anything", "test_train:broken", "verifier broken", "the verifier could not judge"),
    ],
)
def test_a_pool_with_nothing_to_learn_ends_with_the_reason(
    tmp_path: Path, reference: str, verifier: str, says: str, advises: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    Pool.of([Problem(f"p{i}", f"a{i}+a1=", reference, verifier, "d") for i in range(8)]).write(tmp_path / "pool.jsonl")
    small = config(
        tmp_path / "run", steps=500, pool=str(tmp_path / "pool.jsonl"), eval_pool="", curriculum__patience=20
    )
    watcher = Silent()
    summary = train(small, watcher)
    assert summary["ended_by"] == f"nothing left to learn: {says}"
    assert advises in watcher.notes[-1]
    assert summary["wasted_share"] == 1
    assert summary["steps"] < 500
    assert train(small, Silent())["ended_by"] == summary["ended_by"]


def test_a_run_whose_answers_are_all_cut_off_says_that_it_trained_nothing(tmp_path: Path) -> None:
    watcher = Silent()
    cut = config(tmp_path / "run", steps=2, eval_pool="", rollout__max_new_tokens=1, rollout__truncated="exclude")
    assert train(cut, watcher)["tokens"]["trained"] == 0
    assert (
        "nothing was trained. Of 100% of the tokens, the answers were cut off: raise --max-new-tokens"
        in watcher.notes[-1]
    )


def test_a_model_that_says_nothing_ends_with_the_reason(tmp_path: Path) -> None:
    """Two special end tokens with huge opposite embeddings: whatever the hidden state, one of them is certain."""
    policy = load_policy("builtin:arithmetic")
    ends = [policy.tokenizer.eos_token_id, policy.tokenizer.pad_token_id]
    with torch.no_grad():
        head = policy.model.get_output_embeddings().weight
        head[ends[0]] = 1e4
        head[ends[1]] = -1e4
    policy.model.generation_config.eos_token_id = ends
    policy.model.save_pretrained(tmp_path / "mute")
    policy.tokenizer.save_pretrained(tmp_path / "mute")
    run = tmp_path / "run"
    mute = config(run, model=str(tmp_path / "mute"), steps=500, curriculum__patience=20, save_text=True)
    summary = train(mute, Silent())
    assert summary["ended_by"] == "nothing left to learn: all impossible"
    assert summary["accuracy_after"] == 0
    assert summary["tokens_generated"] == rows(run).height  # one end token an answer
    assert scan_texts(run / "ledger").collect()["text"].unique().to_list() == [""]


def always_right(problem: Problem, response: str) -> bool:
    return True


def broken(problem: Problem, response: str) -> bool:
    raise RuntimeError("no disk, no network, no luck")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("", "no rows"),
        ('{"prompt": "a1+a1=", "reference": "a2"}\n{"prompt": "a1', "line 2|row 2|:2"),
        (None, "no such|not there|there is no|does not exist"),
    ],
)
def test_a_pool_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, lines: str | None, says: str) -> None:
    path = tmp_path / "pool.jsonl"
    if lines is not None:
        path.write_text(lines)
    with pytest.raises(TossupError, match=says) as error:
        train(config(tmp_path / "run", pool=str(path)), Silent())
    assert "pool.jsonl" in str(error.value)


def test_a_torn_checkpoint_and_a_torn_metrics_line_do_no_harm(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(config(out, steps=4), Silent())
    for name in ("ledger", "checkpoints"):
        (out / name / ".part-step-00000004-dead").write_bytes(b"half a file")
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rollout/rew')
    newest = checkpoint.latest(out / "checkpoints")
    assert newest is not None
    shutil.rmtree(newest)  # as if the kill had come before the last checkpoint
    train(config(out), Silent())
    assert_same_run(out, whole)


def test_a_finished_run_that_is_shown_again_keeps_its_surplus(tmp_path: Path) -> None:
    def refilling(seed: int) -> TrainConfig:
        out = tmp_path / f"run-{seed}"
        return config(out, seed=seed, curriculum__refill=True, rollout__problems_per_step=4, eval_pool="")

    # Whether groups are left over at the end is chance: the first seed where some are.
    for seed in range(20):
        summary, run = train(refilling(seed), Silent()), tmp_path / f"run-{seed}"
        before = rows(run)
        if "surplus" in before["fate"]:
            break
    assert "surplus" in before["fate"]
    assert train(refilling(seed), Silent()) == summary
    assert rows(run).equals(before)
    train(refilling(seed).model_copy(update={"steps": 7}), Silent())
    assert rows(run)["response_tokens"].sum() == json.loads((run / "summary.json").read_text())["tokens_generated"]


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_ledger_that_is_not_whole_stops_the_run(tmp_path: Path, damage: str) -> None:
    run = tmp_path / "run"
    train(config(run, steps=3), Silent())
    part = run / "ledger" / "step-00000001.parquet"
    whole_part = part.read_bytes()
    if damage == "gone":
        part.unlink()
    else:
        part.write_bytes(whole_part[:200])
    with pytest.raises(TossupError, match=r"ledger .*put it back"):
        train(config(run, steps=4), Silent())
    part.write_bytes(whole_part)
    assert train(config(run, steps=4), Silent())["steps"] == 4


def test_a_damaged_line_of_metrics_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(config(run, steps=3), Silent())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], "\0\0\0", lines[2], ""]))
    with pytest.raises(TossupError, match=r"metrics\.jsonl line 2 is damaged"):
        train(config(run, steps=4), Silent())


def test_a_verifier_that_breaks_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    Pool.of([Problem("p", "a1+a1=", "a2", "test_train:broken", "d")]).write(tmp_path / "pool.jsonl")
    pool = str(tmp_path / "pool.jsonl")
    summary = train(config(tmp_path / "run", steps=1, pool=pool, eval_pool=""), Silent())
    (reason,) = summary["undecided_reasons"]
    assert "no disk, no network, no luck" in reason
    with pytest.raises(TossupError, match=r"no held-out answer could be judged.*no disk"):
        train(config(tmp_path / "measured", pool=pool, eval_pool=pool), Silent())


def test_a_model_that_cannot_be_written_loses_no_step(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    in_the_way = run / "model" / "model.safetensors"
    in_the_way.mkdir(parents=True)
    with pytest.raises(TossupError, match=r"model could not be written .*same command"):
        train(config(run), Silent())
    in_the_way.rmdir()
    again = Silent()
    train(config(run), again)
    assert again.steps == []
    assert_same_run(run, whole)


def test_a_part_of_the_ledger_that_cannot_be_written_stops_the_run_at_the_next_step(
    whole: Path, tmp_path: Path
) -> None:
    """The ledger is written while the run goes on: the error comes a step later, and nothing is lost by it."""
    run = tmp_path / "run"

    class Mover(Silent):
        """Takes the ledger's folder away after the second step."""

        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            super().step(step, metrics)
            if step == 2:
                parts = sorted(path.name for path in (run / "ledger").glob("step-*"))
                assert parts == ["step-00000000.parquet", "step-00000001.parquet"]
                (run / "ledger").rename(tmp_path / "elsewhere")

    watcher = Mover()
    with pytest.raises(TossupError, match=r"ledger/step-00000002\.parquet could not be written: No such file"):
        train(config(run, save_every=2), watcher)
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == ["step-00000002"]
    assert len(watcher.steps) == 3  # the third step was done before the fourth came upon the error
    (tmp_path / "elsewhere").rename(run / "ledger")
    train(config(run, save_every=2), Silent())
    assert_same_run(run, whole)


def test_the_ledger_is_not_written_any_more_when_the_folder_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the run ends: another process may take the folder from then on."""
    write, written = ledger._write, []

    def slowly(frames: Mapping[Path, pl.DataFrame]) -> None:
        time.sleep(0.5)
        write(frames)
        written.extend(path.name for path in frames)

    class Impatient(Silent):
        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "_write", slowly)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path / "run", save_every=100), Impatient())
    assert written == ["step-00000000.parquet"]


def test_metrics_that_cannot_be_written_stop_the_run_resumably(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    class InTheWay(Silent):
        """Puts a folder where the metrics are, after the second step."""

        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            if step == 2:
                (run / "metrics.jsonl").rename(tmp_path / "metrics.jsonl")
                (run / "metrics.jsonl").mkdir()

    with pytest.raises(TossupError, match=r"metrics\.jsonl could not be written: Is a directory.*same command"):
        train(config(run), InTheWay())
    (run / "metrics.jsonl").rmdir()
    (tmp_path / "metrics.jsonl").rename(run / "metrics.jsonl")
    train(config(run), Silent())
    assert_same_run(run, whole)
