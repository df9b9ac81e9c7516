"""Any causal language model of transformers: what the engine computes is what the model's own forward pass says.

Tiny models of random weights, one of each kind of trap: scaled, capped or biased logits, positions that are learned, scaled or
absent, sliding windows, experts, states instead of attention. Weights are large, so that a fault shows in the first digits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

from tossup.engine import arithmetic, checkpoint
from tossup.engine.config import LoraConfig, SamplingConfig, TrainConfig
from tossup.engine.distributed import ALONE
from tossup.engine.generate import TransformersGenerator
from tossup.engine.generate.draws import prompt_seeds
from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy, export, load
from tossup.engine.step import make_optimizer, packs_rows, update
from tossup.records import Group, Problem, Rollout, Stop, TossupError, correct, wrong

VOCABULARY = 25
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
HYBRID = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
STATES = {"num_heads": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8}
SMALL_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4}


def rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0} | values}


ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama3-rope": (
        "llama",
        rope(
            "llama3",
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    ),
    "yarn-rope": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "dynamic-rope": ("llama", rope("dynamic", factor=4.0)),
    "mistral": ("mistral", {"sliding_window": 6}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "qwen3_moe": ("qwen3_moe", EXPERTS | {"num_experts": 4}),
    "qwen3_next": ("qwen3_next", HYBRID | EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 16}),
    "qwen3_5": ("qwen3_5_text", HYBRID),
    "gemma2": ("gemma2", {"final_logit_softcapping": 3.0, "sliding_window": 6, "query_pre_attn_scalar": 8}),
    "gemma3": ("gemma3_text", {"sliding_window": 6, "query_pre_attn_scalar": 8}),
    "phi": ("phi", {}),  # its head has a bias
    "phi3": ("phi3", {"sliding_window": 6}),
    "gpt2": ("gpt2", SMALL_GPT),
    "gpt_neox": ("gpt_neox", {}),
    "opt": ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 16, "init_std": 0.3}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4}),
    "olmo2": ("olmo2", {}),
    "granite": ("granite", {"logits_scaling": 4.0, "residual_multiplier": 0.5}),
    "cohere2": ("cohere2", {"logit_scale": 0.25, "sliding_window": 6}),
    "glm4": ("glm4", {}),
    "smollm3": ("smollm3", {}),
    "gpt_oss": ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6}),
    "deepseek_v3": (
        "deepseek_v3",
        EXPERTS
        | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4}
        | {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    ),
    "llama4": ("llama4_text", {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 64}),
    "falcon_h1": (
        "falcon_h1",
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    ),
    "mamba2": ("mamba2", STATES | {"head_dim": 8, "expand": 2}),
    "bart": ("bart", {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}),
}
"""Name -> model type and settings. Sizes that a model does not know are left out."""

NO_PACKING = {"qwen3_next", "qwen3_5", "opt", "bloom", "gpt_oss", "llama4", "falcon_h1", "mamba2", "bart"}
"""Those that mix what stands in one row, or count its positions by themselves."""

STATES_ONLY = {"mamba2"}
"""Those whose cache is not right in every transformers that we allow; then the engine refuses to sample."""

NO_PADDING = {"bart"}
"""Those that would count left padding as text."""


def write_model(folder: Path, kind: str, settings: dict[str, Any]) -> Path:
    """A folder as from the Hub: random weights and the built-in recipe's tokenizer."""
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {kind}")
    known = AutoConfig.for_model(kind).to_dict().keys() | CONFIG_MAPPING[kind].attribute_map.keys()
    sizes = {name: value for name, value in SIZES.items() if name in known or name.endswith("_token_id")}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **sizes | settings)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    for path in arithmetic.checkpoint_path().glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


@dataclass
class Case:
    """One architecture, as it is loaded from its folder."""

    name: str
    folder: Path
    policy: Policy

    def fresh(self, **changes: Any) -> Policy:
        """Loaded anew, to be changed."""
        return load(str(self.folder), "cpu", "float32", **changes)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    folder = write_model(tmp_path_factory.mktemp("model"), *ARCHITECTURES[request.param])
    torch.set_num_threads(1)
    yield Case(request.param, folder, load(str(folder), "cpu", "float32"))
    shutil.rmtree(folder)


@torch.no_grad()
def by_the_model(policy: Policy, ids: tuple[int, ...], temperature: float) -> torch.Tensor:
    """Log-probs of ids[1:], from the logits of the plain forward pass of this sequence alone."""
    row = torch.tensor([ids])
    logits = policy.model(input_ids=row, use_cache=False).logits[0, :-1].double() / temperature
    return logits.log_softmax(-1).gather(-1, row[0, 1:, None])[:, 0].float()  # type: ignore[no-any-return]


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.randint(2, VOCABULARY, (3, 30), generator=torch.Generator().manual_seed(0))
    attention = torch.tensor([[1] * 30, [1] * 20 + [0] * 10, [1] * 9 + [0] * 21])
    return ids * attention, attention, attention[:, 1:].bool()


def test_log_probs_in_chunks_are_the_model_s_own(case: Case) -> None:
    ids, attention, mask = batch()
    with torch.no_grad():
        got = token_logps(case.policy, ids, attention, mask, 0.7, chunk=4 * VOCABULARY)
    for row, n in zip(range(3), attention.sum(1).tolist(), strict=True):
        expected = by_the_model(case.policy, tuple(ids[row, :n].tolist()), 0.7)
        torch.testing.assert_close(got[row, : n - 1], expected, rtol=1e-4, atol=1e-4)


PROMPTS = [(2, 3, 4), (5,), tuple(range(2, 20)), (3, 3, 9, 10, 11), (4, 3, 2)]


def sampled(policy: Policy) -> list[tuple[tuple[int, ...], Any]]:
    """Prompts with their answers, decoded in two batches, both of which hold more than one length."""
    sampling = SamplingConfig(temperature=0.8, max_new_tokens=14, batch_size=9)
    answers = TransformersGenerator(policy).generate(PROMPTS, 3, prompt_seeds(0, 0, len(PROMPTS)), sampling)
    return [(prompt, answer) for prompt, group in zip(PROMPTS, answers, strict=True) for answer in group]


def test_the_sampler_s_log_probs_are_the_trainer_s(case: Case) -> None:
    if case.name in STATES_ONLY and case.policy.cache_fault:
        with pytest.raises(TossupError, match="cannot be sampled from through its cache"):
            TransformersGenerator(case.policy)
        return
    assert case.policy.pads == (case.name not in NO_PADDING)
    for prompt, answer in sampled(case.policy):
        expected = by_the_model(case.policy, prompt + answer.ids, 0.8)[len(prompt) - 1 :]
        torch.testing.assert_close(torch.tensor(answer.logps), expected, rtol=1e-3, atol=1e-3)


def groups() -> list[Group]:
    """Two mixed groups whose log-probs are made up, so that the ratio is not 1."""
    rng = torch.Generator().manual_seed(1)
    made = []
    for g, lengths in enumerate([(3, 9, 5), (12, 2, 4)]):
        prompt = tuple(torch.randint(2, VOCABULARY, (4 + 3 * g,), generator=rng).tolist())
        rollouts = []
        for i, n in enumerate(lengths):
            ids = tuple(torch.randint(2, VOCABULARY, (n,), generator=rng).tolist())
            verdict = wrong("not right") if i else correct("right")
            rollouts.append(Rollout(prompt, ids, (-3.0,) * n, "", Stop.END, 0, verdict))
        made.append(Group(g, Problem(f"p{g}", "prompt", "1"), tuple(rollouts)))
    return made


def config(**changes: Any) -> TrainConfig:
    settings = {"lr": 1e-3, "clip_low": 1e9, "clip_high": 1e9, "max_grad_norm": 1e9, "micro_batch_tokens": 40}
    return TrainConfig.model_validate(
        {"rollout": {"max_new_tokens": 14, "temperature": 0.8}, "update": settings | changes}
    )


def gradient(policy: Policy, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, torch.Tensor]:
    """What an update would step on."""
    found: dict[str, torch.Tensor] = {}
    optimizer = torch.optim.SGD(policy.trainable().values(), lr=0.0)

    def keep(*_: Any, **__: Any) -> None:
        found.update({name: p.grad.clone() for name, p in policy.trainable().items() if p.grad is not None})

    monkeypatch.setattr(optimizer, "step", keep)
    update(policy, optimizer, groups(), config(**changes), None)
    return found


def assert_same_gradient(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    total = torch.stack([g.norm() for g in a.values()]).norm()
    assert total > 0
    for name, g in a.items():
        assert (g - b[name]).norm() < 1e-4 * total, name


def test_packed_rows_give_the_padded_gradient_or_are_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    if case.name in NO_PACKING:
        with pytest.raises(TossupError, match="packing padded"):
            packs_rows(case.policy, "packed")
        return
    padded = gradient(case.policy, monkeypatch, packing="padded")
    assert_same_gradient(padded, gradient(case.policy, monkeypatch, packing="packed"))


def test_recomputed_layers_give_the_same_gradient(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gradient(case.policy, monkeypatch)
    assert_same_gradient(plain, gradient(case.policy, monkeypatch, gradient_checkpointing=True))


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return policy.model(input_ids=torch.arange(2, 22)[None], use_cache=False).logits  # type: ignore[no-any-return]


def test_an_update_is_kept_by_export_and_by_a_checkpoint(case: Case, tmp_path: Path) -> None:
    policy = case.fresh()
    optimizer = make_optimizer(policy, config().update)
    update(policy, optimizer, groups(), config(), None)
    after = logits(policy)
    assert after.isfinite().all()
    assert not torch.allclose(after, logits(case.policy), atol=1e-3)
    export(policy, tmp_path / "model")
    assert torch.equal(logits(load(str(tmp_path / "model"), "cpu", "float32")), after)
    with checkpoint.writing(tmp_path / "checkpoints", 1, keep=1) as part:
        checkpoint.write_state(part, checkpoint.write_tensors(policy.model, optimizer, ALONE, part))
    again = case.fresh()
    resumed = make_optimizer(again, config().update)
    checkpoint.read_tensors(again.model, resumed, ALONE, tmp_path / "checkpoints" / "step-00000001")
    assert torch.equal(logits(again), after)
    for one, its in ((policy, optimizer), (again, resumed)):
        update(one, its, groups(), config(), None)
    assert torch.equal(logits(again), logits(policy))


def test_an_adapter_trains_and_merges(case: Case, tmp_path: Path) -> None:
    policy = case.fresh(adapter=LoraConfig(rank=2, alpha=4))
    torch.testing.assert_close(logits(policy), logits(case.policy))
    update(policy, make_optimizer(policy, config(lr=0.1).update), groups(), config(), None)
    assert not torch.allclose(logits(policy), logits(case.policy), atol=1e-3)
    export(policy, tmp_path)
    torch.testing.assert_close(logits(load(str(tmp_path), "cpu", "float32")), logits(policy), rtol=1e-3, atol=1e-3)
    weights = dict(policy.weights())
    assert weights.keys() == dict(case.policy.weights()).keys()
    plain = case.fresh()
    plain.model.load_state_dict(weights, strict=False)
    torch.testing.assert_close(logits(plain), logits(policy), rtol=1e-3, atol=1e-3)


def policy_of(folder: Path, kind: str, **settings: Any) -> Policy:
    return load(str(write_model(folder, kind, settings)), "cpu", "float32")


def test_an_answer_that_fills_the_context_does_not_step_beyond_it_while_others_run(tmp_path: Path) -> None:
    """GPT-2 has no position past its context; a row that has ended there waits for the others of its batch."""
    policy = policy_of(tmp_path, "gpt2", n_embd=32, n_layer=2, n_head=4, max_position_embeddings=16)
    policy = replace(policy, eos_ids=frozenset([VOCABULARY + 1]))
    prompts = [(2,) * 12, (3,), (4, 5)]
    sampling = SamplingConfig(max_new_tokens=50, batch_size=64)
    answers = TransformersGenerator(policy).generate(prompts, 1, prompt_seeds(0, 0, 3), sampling)
    for prompt, (answer,) in zip(prompts, answers, strict=True):
        assert len(prompt) + len(answer.ids) == 16
        expected = by_the_model(policy, prompt + answer.ids, 1.0)[len(prompt) - 1 :]
        torch.testing.assert_close(torch.tensor(answer.logps), expected, rtol=1e-3, atol=1e-3)


def test_positions_that_stretch_with_the_longest_row_are_used_where_they_do_not(tmp_path: Path) -> None:
    """LongRoPE has other frequencies once any row is longer than its first training: rows would change each other."""
    stretched = rope("longrope", factor=4.0, short_factor=[1.0] * 4, long_factor=[4.0] * 4)
    policy = policy_of(tmp_path, "phi3", original_max_position_embeddings=16, **stretched)
    assert policy.context == 16
    policy = replace(policy, eos_ids=frozenset([VOCABULARY + 1]))
    for prompt, answer in sampled(policy):
        expected = by_the_model(policy, prompt + answer.ids, 0.8)[len(prompt) - 1 :] if answer.ids else torch.zeros(0)
        torch.testing.assert_close(torch.tensor(answer.logps), expected, rtol=1e-3, atol=1e-3)


def test_the_context_of_a_model_within_a_model_is_known(policy: Policy) -> None:
    """Models that also see keep the text's settings one level down."""
    text = policy.model.config

    class Outer:
        def get_text_config(self) -> Any:
            return text

    assert policy.context == 64
    assert replace(policy, model=type("Both", (), {"config": Outer()})()).context == 64


BERT = {"num_hidden_layers": 2, "max_position_embeddings": 64, "num_key_value_heads": 4}


def test_what_sees_the_future_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TossupError, match="BertLMHeadModel is no causal language model"):
        policy_of(tmp_path, "bert", **BERT)


def test_a_model_that_its_cache_changes_is_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    """RoBERTa counts positions from 2 where nobody gives them."""
    policy = policy_of(tmp_path, "roberta", **BERT, is_decoder=True)
    with pytest.raises(TossupError, match=r"RobertaForCausalLM cannot be sampled from through its cache.*vllm"):
        TransformersGenerator(policy)
