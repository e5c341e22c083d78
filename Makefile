# Every target does its own set-up: a fresh machine needs Python 3.11, git and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two workers: many tests wait for a disk or for a child process. A file stays with one worker, so that what its tests share
# (a server, a built wheel) is made once. For one test: make test PYTEST_ARGS='-n 0 -k name'
PYTEST_ARGS ?= -n 2 --dist loadfile

.PHONY: help venv demo test check lint types doors bench docs-diagrams eval-planner clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP) ## make .venv and install the project into it

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "saga_engine needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true)." >&2; \
	  echo "Name another one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: venv ## the article's plan under good and bad luck, in less than a minute
	@$(BIN)/python examples/booking/demo.py

test: venv ## all tests
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

# The tests come last: their closing line is the last one printed.
check: lint types doors test ## what CI runs: format, lint, types, doors, then all tests (with the docs and the wheel)

lint: venv ## ruff
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: venv ## mypy
	@$(BIN)/mypy

doors: venv ## who may import whom
	@$(BIN)/lint-imports --no-logo

bench: venv ## the benchmark
	@$(BIN)/python benchmarks/booking.py

eval-planner: venv ## score a model's plans: make eval-planner MODEL=provider:name
	@$(BIN)/python benchmarks/eval_planner.py --model '$(MODEL)' $(EVAL_ARGS)

docs-diagrams: venv ## draw the state diagrams of docs/concepts.md anew
	@$(BIN)/python tests/docs/diagrams.py

clean: ## remove the environment and all caches
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
