"""From a problem to its prompt's tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from tossup.engine.policy import Policy
from tossup.records import Problem, TossupError

INSTRUCTIONS = {
    "math": "Please reason step by step, and put your final answer within \\boxed{}.",
    "code": "Answer with the complete program in one Python code block.",
    "choice": "Please reason step by step, and put the letter of your choice within \\boxed{}.",
}
"""What `rollout.instruction = "auto"` adds to a chat prompt, by the problem's verifier."""


def encode_prompt(
    policy: Policy, problem: Problem, instruction: str = "auto", template: Sequence[str] = ()
) -> tuple[int, ...]:
    """The prompt's tokens. A model with a chat template gets chat messages, a base model the plain text.

    `instruction` is added to the last message of a chat prompt: "auto" chooses by verifier, "none" adds nothing. The
    reference answer is never part of the prompt. `template` are options of the chat template, as "enable_thinking=false".

    Raises:
        TossupError: the prompt is empty, or it does not fit the tokenizer's chat template, or the tokenizer not the model.
    """
    tokenizer, known = policy.tokenizer, policy.model.get_input_embeddings().num_embeddings
    if tokenizer.chat_template:
        text = _chat(tokenizer, problem, instruction, _options(tokenizer, template))
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    elif template:
        raise TossupError(f"{template[0]!r} is for a chat template, but the model's tokenizer has none")
    elif isinstance(problem.prompt, str):
        ids = _open_ended(policy, problem.prompt)
    else:
        raise TossupError(f"problem {problem.id} is a chat, but the model's tokenizer has no chat template")
    if not ids:
        raise TossupError(
            f"problem {problem.id}: its prompt {problem.prompt!r:.80} is no token at all, so nothing can follow it"
        )
    if max(ids) >= known:
        raise TossupError(
            f"problem {problem.id}: the tokenizer gives token {max(ids)}, but the model knows {known} tokens: they are not of "
            "one model"
        )
    return tuple(ids)


def _open_ended(policy: Policy, prompt: str) -> list[int]:
    """The tokens of a plain text, with what the tokenizer puts before it but without an end token that it puts behind."""
    ids: list[int] = policy.tokenizer(prompt)["input_ids"]
    if not ids or ids[-1] not in policy.eos_ids:
        return ids
    own: list[int] = policy.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    return ids if own[-1:] == ids[-1:] else ids[:-1]


def _options(tokenizer: Any, template: Sequence[str]) -> dict[str, Any]:
    """What the options say, by name: false and 3 as JSON means them, anything else as text."""
    found: dict[str, Any] = {}
    for text in template:
        name, sign, value = text.partition("=")
        if not sign or not re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template)):
            raise TossupError(f"--template is NAME=VALUE with a NAME that the model's chat template uses; got {text!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def _chat(tokenizer: Any, problem: Problem, instruction: str, options: Mapping[str, Any]) -> str:
    """The problem as the text of a chat that waits for its answer."""
    messages = [{"role": "user", "content": problem.prompt}]
    if not isinstance(problem.prompt, str):
        messages = [dict(message) for message in problem.prompt]
    if not messages or not all(isinstance(message.get("content"), str) for message in messages):
        raise TossupError(
            f"problem {problem.id}: a chat is a list of messages with a role and a text as their content, got "
            f"{problem.prompt!r:.200}"
        )
    added = INSTRUCTIONS.get(problem.verifier, "") if instruction == "auto" else instruction
    if added and added != "none":
        messages[-1]["content"] = f"{messages[-1]['content']}\n\n{added}"
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))
    except (TemplateError, ValueError, TypeError) as e:  # for what it does not know, such as a system message
        raise TossupError(f"problem {problem.id}: the model's chat template refuses its messages ({e})") from e
