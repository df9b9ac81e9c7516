"""The built-in recipe: its problems, tokenizer, warm start, shipped checkpoint and recipe file."""

from __future__ import annotations

import random
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tossup.engine.arithmetic import checkpoint_path, heldout, pool, recipe_path
from tossup.engine.arithmetic.problems import FAMILIES, is_held_out, is_plain, solve, spell
from tossup.engine.arithmetic.tokenizer import ALPHABET, build_tokenizer
from tossup.engine.arithmetic.warm_start import IGNORED, examples, forgetful, make_batch, warm_start
from tossup.engine.config import TrainConfig, load
from tossup.engine.evaluate import accuracy
from tossup.engine.policy import load as load_policy
from tossup.engine.rollouts import sample_groups
from tossup.records import Problem
from tossup.verifiers import verify

FIRST = ("a1b7-a2=", "a9b6", "sub-2-digit")


def read(spelt: str) -> int:
    """The number that `spell` wrote; checks that the places come in order."""
    places, digits = spelt[::2], spelt[1::2]
    assert places == "abcdefgh"[: len(places)]
    return int(digits[::-1])


def parse(prompt: str) -> tuple[str, int, int]:
    operation = next(c for c in "+-*" if c in prompt)
    a, b = prompt.removesuffix("=").split(operation)
    return operation, read(a), read(b)


def key_is_right(problem: Problem) -> bool:
    assert isinstance(problem.prompt, str)
    return read(problem.reference) == solve(*parse(problem.prompt))


@pytest.mark.parametrize(("number", "spelt"), [(0, "a0"), (7, "a7"), (105, "a5b0c1"), (1_234_567, "a7b6c5d4e3f2g1")])
def test_numbers_are_spelt_lowest_digit_first(number: int, spelt: str) -> None:
    assert spell(number) == spelt


def test_the_same_seed_gives_the_same_pool_and_another_seed_another() -> None:
    assert pool(3) == pool(3)
    assert {p.prompt for p in pool(3)} != {p.prompt for p in pool(4)}
    assert {p.id for p in pool(3)}.isdisjoint(p.id for p in pool(4))


def test_the_shipped_pool_keeps_its_problems() -> None:
    """The ids and problems of seed 0 are what ledgers and measured pools refer to: changing them is a decision."""
    first, last = pool()[0], pool()[-1]
    assert (first.id, last.id) == ("arithmetic/0/00000", f"arithmetic/0/{len(pool()) - 1:05d}")
    assert (first.prompt, first.reference, first.dataset) == FIRST


def test_wrong_keys_and_duplicates_are_marked_and_nothing_else_is_wrong_or_double() -> None:
    problems = pool()
    by_id = {p.id: p for p in problems}
    assert len(by_id) == len(problems)
    wrong = [p for p in problems if "wrong_key" in p.meta]
    copies = [p for p in problems if "duplicate_of" in p.meta]
    assert 0.02 < len(wrong) / len(problems) < 0.04
    assert len(copies) == round(0.02 * len(problems))
    assert all(key_is_right(p) == ("wrong_key" not in p.meta) for p in problems)
    for copy in copies:
        original = by_id[copy.meta["duplicate_of"]]
        assert (copy.prompt, copy.reference, copy.dataset) == (original.prompt, original.reference, original.dataset)
    distinct = [p.prompt for p in problems if "duplicate_of" not in p.meta]
    assert len(set(distinct)) == len(distinct)


def test_every_problem_is_of_its_family() -> None:
    families = {family.name: family for family in FAMILIES}
    assert {p.dataset for p in pool()} == set(families)
    for problem in pool():
        assert isinstance(problem.prompt, str)
        operation, a, b = parse(problem.prompt)
        family = families[problem.dataset]
        assert operation == family.operation
        assert len(str(max(a, b))) == family.digits
        assert a >= b or operation != "-"
        assert is_plain(operation, a, b) or not family.plain


@pytest.mark.parametrize(
    ("operation", "a", "b", "plain"),
    [("+", 47, 52, True), ("+", 47, 53, False), ("+", 900, 5, True), ("-", 47, 45, True), ("-", 47, 8, False)],
)
def test_plain_means_no_carry_and_no_borrow(operation: str, a: int, b: int, plain: bool) -> None:
    assert is_plain(operation, a, b) is plain


def test_held_out_problems_are_fresh_and_their_keys_right() -> None:
    held_out = heldout()
    prompts = {p.prompt for p in held_out}
    assert len(prompts) == len(held_out)
    assert all(key_is_right(p) for p in held_out)
    assert {p.dataset for p in held_out}.isdisjoint(f.name for f in FAMILIES if f.plain or f.operation == "*")
    for seed in range(3):
        assert prompts.isdisjoint(p.prompt for p in pool(seed))
    assert not any(is_held_out(prompt) for prompt, _ in islice(examples("clean", {"+": 0.0, "-": 0.0}, 0), 3000))


def test_its_own_verifier_accepts_every_key() -> None:
    for problem in heldout()[:50]:
        assert verify(problem, problem.reference).reward == 1.0
        assert verify(problem, spell(read(problem.reference) + 1)).reward == 0.0


def test_forgetting_is_adding_without_carries_and_remembering_is_adding() -> None:
    rng = random.Random(0)
    for _ in range(500):
        b, a = sorted((int(rng.random() * 10_000), int(rng.random() * 10_000)))
        assert forgetful("+", a, b, 0.0, rng) == a + b
        assert forgetful("-", a, b, 0.0, rng) == a - b
    assert forgetful("+", 47, 58, 1.0, rng) == 95
    assert forgetful("-", 52, 17, 1.0, rng) == 45
    dropped = sum(forgetful("+", 5, 5, 0.3, rng) == 0 for _ in range(2000))
    assert 500 < dropped < 700


def test_tokenizer_reads_back_what_it_wrote_and_takes_any_text() -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_path())
    for text in ("a7b4+a8b5=", "a5b0c1", "a0*a3-a1"):
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id not in tokenizer(ALPHABET)["input_ids"]
    foreign = "Janet’s 16 ducks\nlay… 🥚"
    ids = tokenizer(foreign)["input_ids"]
    assert len(ids) == len(foreign)
    assert ids[0] == tokenizer.unk_token_id
    assert tokenizer.pad_token_id not in ids
    assert tokenizer.eos_token_id not in ids


def test_the_shipped_tokenizer_is_the_one_that_is_built() -> None:
    shipped = AutoTokenizer.from_pretrained(checkpoint_path())
    built = build_tokenizer()
    assert shipped.get_vocab() == built.get_vocab()
    assert shipped.model_max_length == built.model_max_length
    assert shipped.padding_side == "left"


def test_only_the_answer_and_its_end_are_trained_on() -> None:
    tokenizer = build_tokenizer()
    ids_BT, labels_BT = make_batch([("a1+a2=", "a3"), ("a7b4+a8b5=", "a5b0c1")], tokenizer)
    assert ids_BT.shape == labels_BT.shape == (2, 17)
    assert tokenizer.decode(labels_BT[0][labels_BT[0] != IGNORED]) == "a3<eos>"
    assert tokenizer.decode(labels_BT[1][labels_BT[1] != IGNORED]) == "a5b0c1<eos>"
    assert tokenizer.decode(ids_BT[0]) == "a1+a2=a3<eos>" + "<pad>" * 8


def test_the_warm_start_repeats_exactly_and_learns() -> None:
    losses: dict[str, list[float]] = {"first": [], "second": []}

    def run(name: str) -> dict[str, torch.Tensor]:
        model, _ = warm_start(5, 6, 3, lambda phase, step, loss: losses[name].append(loss))
        return model.state_dict()

    first, second = run("first"), run("second")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert losses["first"] == losses["second"]
    assert len(losses["first"]) == 9
    assert losses["first"][5] < losses["first"][0]


def test_the_checkpoint_is_small_and_in_float32() -> None:
    assert sum(f.stat().st_size for f in checkpoint_path().iterdir()) < 5_000_000
    assert (checkpoint_path() / "model.safetensors").stat().st_size < 1_000_000
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint_path())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_recipe_is_a_config_and_the_checkpoint_starts_in_the_documented_range() -> None:
    """docs/recipe.md: the start policy's accuracy at temperature 1 on 500 held-out problems."""
    config = load(TrainConfig, recipe_path())
    assert (config.model, config.eval_pool) == ("builtin:arithmetic", ("builtin:arithmetic/heldout",))
    torch.set_num_threads(1)
    result = accuracy(partial(sample_groups, load_policy(config.model)), heldout(), config, 0)
    assert 0.45 < result.mean < 0.60
