"""Prompts and answers with tokenizers of all makes: nothing is lost, doubled or spoiled, and what does not fit is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small import make_policy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tossup.curriculum.pool import Pool
from tossup.engine.config import TrainConfig
from tossup.engine.inputs import Problems
from tossup.engine.policy import Policy
from tossup.engine.prompts import encode_prompt
from tossup.records import Problem, Prompt, TossupError

BEGIN, END, THINK = 256, 257, 258


def by_bytes(template: str = "", around: str = "") -> Any:
    """A byte-level tokenizer: 256 bytes, then <s>, </s> and <think>; `around` is what it puts around every text."""
    alphabet = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(alphabet, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    backend.add_tokens(["<think>"])
    if around:
        known = [("<s>", BEGIN), ("</s>", END)]
        backend.post_processor = processors.TemplateProcessing(around, None, known)
    made: Any = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")  # type: ignore[no-untyped-call]
    made.chat_template = template or None
    return made


def policy_with(tokenizer: Any, vocabulary: int = 300) -> Policy:
    policy = make_policy()
    policy.model.resize_token_embeddings(vocabulary)
    return replace(policy, tokenizer=tokenizer, eos_ids=frozenset([END]), pad_id=END)


def encoded(policy: Policy, prompt: Prompt, instruction: str = "none") -> tuple[int, ...]:
    return encode_prompt(policy, Problem("p7", prompt, "1"), instruction)


@pytest.mark.parametrize(
    ("around", "first"), [("", ()), ("<s> $A", (BEGIN,)), ("<s> $A </s>", (BEGIN,)), ("$A </s>", ())]
)
def test_a_plain_text_keeps_what_begins_it_and_is_not_ended(around: str, first: tuple[int, ...]) -> None:
    """A model that reads an end token before it answers takes the text for finished."""
    tokenizer = by_bytes(around=around)
    plain = tuple(by_bytes()("1+1=")["input_ids"])
    assert encoded(policy_with(tokenizer), "1+1=") == (*first, *plain)


def test_an_end_token_that_the_text_itself_ends_with_stays() -> None:
    assert encoded(policy_with(by_bytes()), "a</s>")[-1] == END


def test_a_chat_template_that_begins_the_text_is_not_begun_twice() -> None:
    tokenizer = by_bytes("<s>{% for m in messages %}{{ m.content }}{% endfor %}", around="<s> $A </s>")
    ids = encoded(policy_with(tokenizer), "x")
    assert ids.count(BEGIN) == 1
    assert END not in ids


ECHO = "{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% endfor %}"


def test_an_instruction_is_added_to_the_last_message_alone() -> None:
    policy = policy_with(by_bytes(ECHO))
    prompt = ({"role": "user", "content": "a"}, {"role": "user", "content": "b"})
    assert policy.decode(encoded(policy, prompt, "now")) == "[user]a[user]b\n\nnow"
    assert [message["content"] for message in prompt] == ["a", "b"]


@pytest.mark.parametrize(
    "prompt",
    [
        (),
        ({"role": "user"},),
        ({"role": "user", "content": None},),
        ({"role": "user", "content": [{"type": "text", "text": "b"}]},),
    ],
)
def test_messages_that_are_no_texts_are_said_and_not_spoiled(prompt: Any) -> None:
    with pytest.raises(TossupError, match=r"problem p7: a chat is a list of messages"):
        encoded(policy_with(by_bytes(ECHO)), prompt, "now")


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no system') }}", "{% for m in messages %}", "{{ messages[3].content + 1 }}", "{{ 1 + '' }}"],
)
def test_a_template_that_refuses_says_for_which_problem(template: str) -> None:
    with pytest.raises(TossupError, match=r"problem p7: the model's chat template refuses"):
        encoded(policy_with(by_bytes(template)), ({"role": "system", "content": "x"},))


def test_several_templates_without_a_default_are_said() -> None:
    tokenizer = by_bytes()
    tokenizer.chat_template = {"tool_use": "x", "rag": "y"}
    with pytest.raises(TossupError, match=r"problem p7.*multiple chat templates"):
        encoded(policy_with(tokenizer), "x")


@pytest.mark.parametrize("make", [by_bytes, lambda: by_bytes("{# nothing #}")])
def test_a_prompt_without_a_token_is_said(make: Callable[[], Any]) -> None:
    with pytest.raises(TossupError, match="problem p7: its prompt '' is no token at all"):
        encoded(policy_with(make()), "")


def test_a_tokenizer_of_another_model_is_said() -> None:
    """On a GPU such a token ends the process."""
    with pytest.raises(TossupError, match="gives token 258, but the model knows 258 tokens"):
        encoded(policy_with(by_bytes(), vocabulary=END + 1), "<think>")


def test_an_answer_is_decoded_whatever_the_tokens() -> None:
    """Half of a character, tokens beyond the tokenizer's, special tokens and others that were only added."""
    policy = policy_with(by_bytes())
    a, half = (by_bytes()(text)["input_ids"] for text in ("a", "é"))
    assert policy.decode((*a, half[0])) == "a\ufffd"
    assert policy.decode((*a, 299, BEGIN, *a, THINK, END)) == "aa<think>"
    assert policy.decode((END,)) == policy.decode(()) == ""


@pytest.mark.parametrize("key", ["pool", "eval_pool"])
@pytest.mark.parametrize("prompt", ["", (), ({"role": "user", "content": ""},)])
def test_an_empty_prompt_is_found_before_the_run_begins(tmp_path: Path, key: str, prompt: Prompt) -> None:
    full = "1+1=" if isinstance(prompt, str) else ({"role": "user", "content": "1+1="},)
    Pool.of([Problem("fine", full, "2"), Problem("p7", prompt, "2")]).write(tmp_path / "pool.jsonl")
    path = str(tmp_path / "pool.jsonl")
    with pytest.raises(TossupError, match=r"pool.jsonl: the prompt of problem p7 is empty \(1 such"):
        Problems.of(TrainConfig.model_validate({key: path if key == "pool" else (path,)}))
