# The two commands of the README, and the checks. Needs Python 3.11 to 3.13, git and make; everything else goes into .venv.
#
# The pin takes a CPU build of torch where one is at hand, and the same release that CI tests everywhere else. On a GPU machine:
#   make TORCH='torch>=2.11' train

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0

.PHONY: train test check

train: $(VENV)/.ready
	$(VENV)/bin/tossup train

test: $(VENV)/.ready
	$(VENV)/bin/pytest -q -n 2

check: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check '$(TORCH)' -e '.[dev]'
	touch $@
