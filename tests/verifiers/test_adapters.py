"""The verifiers as other trainers call them. Each was also run inside the real package; docs/verifiers.md says which."""

import pytest

from tossup.records import TossupError
from tossup.verifiers.adapters import scorer, text_of, trl_reward, verl_score


def test_a_plain_function():
    score = scorer("math")
    assert [score(r"so \boxed{0.5}", "1/2"), score(r"so \boxed{0.6}", "1/2"), score("x", "")] == [1.0, 0.0, None]
    assert scorer("exact")("7", "7") == 1.0


def test_trl_takes_text_and_columns():
    reward = trl_reward("math", reference="answer")
    out = reward(
        prompts=["1/2?"] * 3,
        completions=[r"\boxed{0.5}", r"\boxed{1}", "x"],
        answer=["1/2", "1/2", ""],
        trainer_state=None,
    )
    assert out == [1.0, 0.0, None]
    assert reward.__name__ == "tossup_math"


def test_trl_takes_chats_and_a_verifier_for_each_row():
    reward = trl_reward("math", reference="key")
    prompts = [[{"role": "user", "content": "Which? (A) one (B) two"}], [{"role": "user", "content": "7"}]]
    completions = [[{"role": "assistant", "content": r"\boxed{two}"}], [{"role": "assistant", "content": "7 "}]]
    assert reward(prompts, completions, key=["B", 7], verifier=["choice", "exact"]) == [1.0, 1.0]


def test_trl_without_the_column_says_what_there_is():
    with pytest.raises(TossupError, match=r"no column 'answer' \(it has solution, trainer_state\)"):
        trl_reward()(prompts=["x"], completions=["y"], solution=["z"], trainer_state=None)


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "a"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "ab"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([], ""),
    ],
)
def test_what_the_model_said(completion, text):
    assert text_of(completion) == text


def test_verl():
    assert verl_score("d", r"\boxed{0.5}", "1/2") == {"score": 1.0, "acc": 1.0, "undecided": 0.0}
    assert verl_score("d", r"\boxed{0.6}", "1/2", None) == {"score": 0.0, "acc": 0.0, "undecided": 0.0}
    assert verl_score("d", "x", "", {}, undecided=-1.0) == {"score": -1.0, "acc": 0.0, "undecided": 1.0}
    assert verl_score("d", "7", 7, {"verifier": "exact"}, reward_router_address=None)["score"] == 1.0
