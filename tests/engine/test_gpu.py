"""The engine on a device: every test runs on the CPU and, where there is one, on a CUDA device (`pytest -m gpu`).

On a CUDA device warnings are no errors: what drivers and libraries have to say there is not ours. What a test finds out about
rounding it also records, for `benchmarks/gpu.py` to show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small import EOS, PAD, VOCABULARY, lone_rank, make_group

from tossup.curriculum.ledger import scan_ledger
from tossup.engine import checkpoint
from tossup.engine.arithmetic import recipe_path
from tossup.engine.config import LoraConfig, SamplingConfig, TrainConfig, load
from tossup.engine.distributed import ALONE, Torchrun
from tossup.engine.generate import TransformersGenerator, open_generator
from tossup.engine.generate.draws import prompt_seeds
from tossup.engine.logps import token_logps
from tossup.engine.policy import Policy
from tossup.engine.policy import load as load_policy
from tossup.engine.progress import Silent
from tossup.engine.step import make_optimizer, update
from tossup.engine.train import train

CUDA = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]
pytestmark = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])

Record = Callable[[str, object], None]
Result = tuple[dict[str, float], torch.Tensor]
"""The figures of an update, and its whole gradient in float64 on the CPU."""

GROUPS = [make_group("1001", [2, 9, 4, 3], seed=1), make_group("10?1", [5, 1, 7, 2], seed=2, gid=1)]
PROMPTS = [(2, 3, 4), (5,), (6, 7, 8, 9, 10, 11, 2), (3, 3)]
NO_FLASH = "flash attention needs a CUDA device and the package flash_attn"


def make_policy(device: str, compute: torch.dtype = torch.float32, attention: str = "") -> Policy:
    """Always the same float32 weights. Heads of 16 are the smallest that every attention takes."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.2,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    model: Any = Qwen3ForCausalLM(config)
    if attention:
        model.set_attn_implementation(attention)
    model.to(device).eval()
    return Policy(model, None, torch.device(device), compute, frozenset([EOS]), PAD, packs=True)


def settings(**changes: Any) -> TrainConfig:
    """Without clipping: which side of an edge a ratio falls on is a matter of rounding."""
    plain = {"max_grad_norm": 1e9, "clip_low": 10, "clip_high": 10}
    rollout = {"temperature": 0.7, "max_new_tokens": 12}
    return TrainConfig.model_validate({"rollout": rollout, "update": plain | changes})


def gradient(policy: Policy, **changes: Any) -> Result:
    """An update that does not move the weights."""
    figures = update(policy, torch.optim.SGD(policy.model.parameters(), lr=0.0), GROUPS, settings(**changes), None)
    return figures, torch.cat([p.grad.flatten().cpu().double() for p in policy.model.parameters()])


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """Their distance, as a share of the length of `b`."""
    return float((a - b).norm() / b.norm())


def exactly(**changes: Any) -> Result:
    """The same weights in float64 on the CPU."""
    policy = make_policy("cpu")
    policy.model.double()
    return gradient(policy, **changes)


@pytest.mark.parametrize("objective", ["grpo", "gspo", "cispo"])
def test_loss_and_gradient_are_those_of_float64(device: str, objective: str, record_property: Record) -> None:
    expected, found = exactly(objective=objective), gradient(make_policy(device), objective=objective)
    record_property("off by", f"{apart(found[1], expected[1]):.1e}")
    assert apart(found[1], expected[1]) < 1e-4
    assert found[0] == pytest.approx(expected[0], rel=1e-4, abs=1e-5)


def test_bfloat16_is_off_by_its_rounding(device: str, record_property: Record) -> None:
    expected, found = exactly(), gradient(make_policy(device, torch.bfloat16))
    record_property("off by", f"{apart(found[1], expected[1]):.1e}")
    assert 1e-5 < apart(found[1], expected[1]) < 0.1
    assert torch.nn.functional.cosine_similarity(found[1], expected[1], dim=0) > 0.995
    assert found[0]["update/loss"] == pytest.approx(expected[0]["update/loss"], abs=0.05)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flash_attention_2", "flex_attention"])
def test_packed_rows_give_the_gradient_of_padded_ones(device: str, attention: str, record_property: Record) -> None:
    if attention == "flash_attention_2" and (device == "cpu" or not find_spec("flash_attn")):
        pytest.skip(NO_FLASH)
    if attention == "flex_attention" and device == "cpu":
        pytest.skip("flex attention is compiled for minutes on a CPU")
    halves = "flash" in attention
    policy = make_policy(device, torch.bfloat16 if halves else torch.float32, attention)
    padded, packed = (gradient(policy, packing=how, micro_batch_tokens=30) for how in ("padded", "packed"))
    record_property("off by", f"{apart(packed[1], padded[1]):.1e}")
    assert apart(packed[1], padded[1]) < (0.05 if halves else 1e-4)
    assert packed[0] == pytest.approx(padded[0], rel=0.02 if halves else 1e-4, abs=0.01 if halves else 1e-5)


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_chunks_give_the_gradient_of_all_logits_at_once(
    device: str, compute: torch.dtype, record_property: Record
) -> None:
    policy = make_policy(device, compute)
    ids = torch.randint(2, VOCABULARY, (3, 33), generator=torch.Generator().manual_seed(0)).to(device)

    def value_and_gradient(chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
        policy.model.zero_grad()
        found = token_logps(policy, ids, torch.ones_like(ids), torch.ones_like(ids[:, 1:]).bool(), 0.7, chunk)
        (found * torch.arange(32, device=device)).sum().backward()
        return found.detach(), torch.cat([p.grad.flatten() for p in policy.model.parameters()])

    (whole, gradient_whole), (chunked, gradient_chunked) = (value_and_gradient(n) for n in (1 << 25, 5 * VOCABULARY))
    record_property("off by", f"{apart(gradient_chunked, gradient_whole):.1e}")
    tolerance = 1e-5 if compute is torch.float32 else 0.02
    torch.testing.assert_close(chunked, whole, rtol=tolerance, atol=tolerance)
    assert apart(gradient_chunked, gradient_whole) < tolerance


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_recomputed_layers_give_the_same_gradient(device: str, compute: torch.dtype) -> None:
    policy = make_policy(device, compute)
    assert apart(gradient(policy, gradient_checkpointing=True)[1], gradient(policy)[1]) < 1e-5


def test_weights_and_moments_stay_in_float32(device: str) -> None:
    policy = make_policy(device, torch.bfloat16)
    before = [p.detach().clone() for p in policy.model.parameters()]
    config = settings(lr=1e-6)
    optimizer = make_optimizer(policy, config.update)
    for _ in range(20):
        update(policy, optimizer, GROUPS, config, None)
    moved = torch.cat([(p - old).abs().flatten() for p, old in zip(policy.model.parameters(), before, strict=True)])
    assert 5e-6 < moved[moved > 0].median() < 4e-5
    for p in policy.model.parameters():
        state = optimizer.state[p]
        assert p.dtype is state["exp_avg"].dtype is state["exp_avg_sq"].dtype is torch.float32
        assert {t.device.type for t in (p, *state.values())} == {device}


@torch.no_grad()
def worst(policy: Policy, prompt: tuple[int, ...], ids: Sequence[int], sampled: Sequence[float]) -> float:
    """The largest difference between a sampled answer's log-probs and the trainer's."""
    row = torch.tensor([[*prompt, *ids]], device=policy.device)
    mask = torch.arange(1, row.shape[1], device=policy.device)[None] >= len(prompt)
    found = token_logps(policy, row, torch.ones_like(row), mask, 0.8)[0, len(prompt) - 1 :]
    return float((found.cpu() - torch.tensor(sampled)).abs().max())


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_sampled_log_probs_are_the_trainer_s(device: str, compute: torch.dtype, record_property: Record) -> None:
    policy = make_policy(device, compute)
    sampling = SamplingConfig(temperature=0.8, max_new_tokens=20, batch_size=8)
    answers = TransformersGenerator(policy).generate(PROMPTS, 4, prompt_seeds(0, 0, 4), sampling)
    off = max(worst(policy, p, a.ids, a.logps) for p, of in zip(PROMPTS, answers, strict=True) for a in of)
    record_property("off by", f"{off:.1e}")
    assert off < (1e-4 if compute is torch.float32 else 0.1)


def sampled_ids(policy: Policy) -> list[list[tuple[int, ...]]]:
    sampling = SamplingConfig(temperature=0.8, max_new_tokens=20, batch_size=8)
    answers = TransformersGenerator(policy).generate(PROMPTS, 4, prompt_seeds(0, 0, 4), sampling)
    return [[a.ids for a in of] for of in answers]


def test_the_seeds_say_what_is_sampled_and_not_the_device(device: str) -> None:
    assert sampled_ids(make_policy(device)) == sampled_ids(make_policy("cpu"))


def test_a_checkpoint_of_a_device_is_read_on_a_cpu(device: str, tmp_path: Path) -> None:
    config = settings(lr=1e-3)
    policy, other = make_policy(device), make_policy("cpu")
    optimizer, others = (make_optimizer(p, config.update) for p in (policy, other))
    update(policy, optimizer, GROUPS, config, None)
    checkpoint.write_state(tmp_path, checkpoint.write_tensors(policy.model, optimizer, ALONE, tmp_path))
    checkpoint.read_tensors(other.model, others, ALONE, tmp_path)
    for model, of in ((policy, optimizer), (other, others)):
        update(model, of, GROUPS, config, None)
    for a, b in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-4)


def run(out: Path, device: str, steps: int, attention: str) -> None:
    """A run with all that can be in it: the start model, evaluation, refilling."""
    changes: dict[str, Any] = {"device": device, "dtype": "float32", "attention": attention, "steps": steps}
    changes |= {"rollout.problems_per_step": 6, "rollout.group_size": 4, "update.kl_beta": 0.05}
    changes |= {"eval.problems": 10, "eval.samples": 2, "eval.every": 1, "threads": 1, "save_every": 1}
    train(load(TrainConfig, recipe_path(), changes | {"out": str(out), "curriculum.refill": True}), Silent())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_resumed_run_is_the_uninterrupted_one(
    device: str, attention: str, tmp_path: Path, record_property: Record
) -> None:
    """Bit for bit; but with attention whose backward pass adds up in no fixed order, as torch's fused ones do on a GPU."""
    run(tmp_path / "whole", device, 2, attention)
    run(tmp_path / "parts", device, 1, attention)
    run(tmp_path / "parts", device, 2, attention)
    whole, parts = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "parts"))
    off = apart(*(torch.cat([t.flatten().double() for _, t in sorted(w.items())]) for w in (parts, whole)))
    record_property("off by", f"{off:.1e}")
    assert off <= (1e-4 if device == "cuda" and attention == "sdpa" else 0.0)
    if off == 0:
        ledgers = [scan_ledger(tmp_path / name / "ledger") for name in ("whole", "parts")]
        a, b = (ledger.select("problem", "sample", "reward", "fate").collect() for ledger in ledgers)
        assert a.equals(b)


def test_an_adapter_is_trained_as_on_a_cpu(device: str) -> None:
    pytest.importorskip("peft")
    found = []
    for place in (device, "cpu"):
        policy = load_policy("builtin:arithmetic", place, "float32", adapter=LoraConfig(rank=4), seed=1)
        config = settings(lr=1e-2, kl_beta=0.1)
        optimizer = make_optimizer(policy, config.update)
        figures = [update(policy, optimizer, GROUPS, config, None) for _ in range(3)]
        found.append((figures, {name: w.cpu() for name, w in policy.weights()}))
    assert found[0][0][2]["update/kl"] > 0
    for a, b in zip(found[0][0], found[1][0], strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-4)
    for name, weight in found[1][1].items():
        torch.testing.assert_close(found[0][1][name], weight, rtol=1e-3, atol=1e-3)


@pytest.fixture
def one_rank(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Torchrun]:
    """What torchrun makes of a process that is alone: FSDP2 and all collectives, over NCCL on a GPU and gloo on a CPU."""
    world = lone_rank(device, monkeypatch)
    yield world
    world.leave()


def test_a_sharded_model_is_trained_as_a_whole_one(device: str, one_rank: Torchrun) -> None:
    config = settings(lr=1e-3)
    whole, sharded = make_policy(device), make_policy(device)
    one_rank.shard(sharded)
    assert one_rank.gather("here") == ["here"]
    assert one_rank.broadcast({"order": 1}) == {"order": 1}
    optimizers = [make_optimizer(p, config.update) for p in (whole, sharded)]
    for _ in range(2):
        expected = update(whole, optimizers[0], GROUPS, config, None)
        found = update(sharded, optimizers[1], GROUPS, config, None, one_rank)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    answers = sampled_ids(whole)
    with one_rank.gathered(sharded):
        assert sampled_ids(sharded) == answers
    weights = one_rank.whole(sharded)
    assert weights is not None
    for name, p in whole.model.named_parameters():
        torch.testing.assert_close(weights[name], p.detach().cpu(), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    not (os.environ.get("TOSSUP_VLLM_PYTHON") or find_spec("vllm")),
    reason="no vLLM here, and TOSSUP_VLLM_PYTHON names none",
)
def test_vllm_gives_its_memory_back_while_it_sleeps(device: str, record_property: Record) -> None:
    policy = load_policy("builtin:arithmetic", device, "float32")
    sampling = SamplingConfig(generator="vllm", generator_memory=0.3, max_new_tokens=8)
    prompts = [tuple(policy.tokenizer(text)["input_ids"]) for text in ("a7b4+a8b5=", "a1+a2=")]
    generator = open_generator(policy, sampling, print)
    try:
        generator.push(policy, 0)
        before = generator.generate(prompts, 4, prompt_seeds(0, 0, 2), sampling)
        awake = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
        generator.sleep()
        if device == "cuda":
            free, total = torch.cuda.mem_get_info()
            record_property("given back", f"{(free - awake) / (1 << 30):.1f} GiB")
            assert free - awake > 0.2 * total
        generator.wake()
        after = generator.generate(prompts, 4, prompt_seeds(0, 0, 2), sampling)
    finally:
        generator.close()
    assert [[a.ids for a in of] for of in after] == [[a.ids for a in of] for of in before]
