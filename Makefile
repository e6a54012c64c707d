# The front door. Each target sets up what it needs: a machine with Python 3.11 and pip is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := .venv-demo
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
PEERS_LAMBDA := .venv-peers-lambda
PEERS_LAMBDA_READY := $(PEERS_LAMBDA)/.ready
PEERS_DAPR := .venv-peers-dapr
PEERS_DAPR_READY := $(PEERS_DAPR)/.ready

.PHONY: help demo demo-temporal demo-lambda demo-dapr demo-ui dapr-sidecar test test-long test-repeat test-ui test-all test-pythons check docs strands-suite bench bench-quick bench-peers bench-temporal bench-lambda bench-dapr bench-page soak clean

help:  ## What there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml tests/temporal/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --require-hashes --requirement tests/temporal/requirements.txt
	@touch $@

$(DEMO)/.ready: pyproject.toml  # what a user installs: a newcomer's first command does not wait for the tools of a developer
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --editable .
	@touch $@

$(DEMO)/.ready-temporal: $(DEMO)/.ready tests/temporal/requirements.txt
	$(DEMO)/bin/python -m pip install --quiet --editable '.[temporal]'
	$(DEMO)/bin/python -m pip install --quiet --require-hashes --requirement tests/temporal/requirements.txt
	@touch $@

$(DEMO)/.ready-lambda: $(DEMO)/.ready
	$(DEMO)/bin/python -m pip install --quiet --editable '.[lambda]' 'aws-durable-execution-sdk-python-testing>=1.4,<2'
	@touch $@

$(DEMO)/.ready-dapr $(DEMO)/.ready-ui: $(DEMO)/.ready-%: $(DEMO)/.ready
	$(DEMO)/bin/python -m pip install --quiet --editable '.[$*]'
	@touch $@

$(PEERS_READY): pyproject.toml tests/temporal/requirements.txt  # apart: what they require is not what the tests are run with
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS)/bin/python -m pip install --quiet --editable '.[dev,peers,peers-temporal]'
	$(PEERS)/bin/python -m pip install --quiet --require-hashes --requirement tests/temporal/requirements.txt
	@touch $@

$(PEERS_LAMBDA_READY): bench/aws_lambda/requirements.txt  # apart: it requires an older SDK of AWS than we do
	$(PYTHON) -m venv $(PEERS_LAMBDA)
	$(PEERS_LAMBDA)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS_LAMBDA)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(PEERS_DAPR_READY): bench/dapr/requirements.txt  # apart: what it requires overwrites files of the `dapr` that ours requires
	$(PYTHON) -m venv $(PEERS_DAPR)
	$(PEERS_DAPR)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS_DAPR)/bin/python -m pip install --quiet --requirement $<
	@touch $@

demo: $(DEMO)/.ready  ## Kill a travel agent in the middle of a booking, and resume it
	$(DEMO)/bin/strands-durable demo

demo-temporal: $(DEMO)/.ready-temporal  ## The same on a Temporal server of its own
	$(DEMO)/bin/strands-durable demo --backend temporal

demo-lambda: $(DEMO)/.ready-lambda  ## The same on AWS's local runner for durable functions
	$(DEMO)/bin/strands-durable demo --backend lambda

demo-dapr: $(DEMO)/.ready-dapr  ## The same beside two sidecars of Dapr, which are built once if they are not found: 3 to 10 minutes
	$(DEMO)/bin/strands-durable demo --backend dapr

demo-ui: $(DEMO)/.ready-ui  ## Three runs in a browser: one killed and resumed, a Graph, and one that waits for your approval
	$(DEMO)/bin/strands-durable demo --ui

dapr-sidecar: $(READY)  ## Find daprd, placement and scheduler, or build them once: 3 to 10 minutes
	$(BIN)/python -m strands_durable.testing.dapr

# Four at a time on two cores, since many tests wait for processes and servers. Those that measure whether a server is missed do not
# run beside those that start a process for every invocation.
TEST := $(BIN)/python -m pytest -n 4 --dist worksteal

test: $(READY)  ## What a change usually breaks, in under ten minutes on two cores
	$(TEST) -m "not long"

test-long: dapr-sidecar  ## The rest: fleets of workers, kills, freezes and outages on Temporal and Dapr, every feature, the demo and the examples on each engine, Lambda with a process for each invocation, and the web page in Chromium
	$(TEST) -m long tests/crash --ignore tests/crash/test_lambda_kills.py
	$(TEST) -m long tests/contract tests/unit tests/aws_lambda tests/dapr tests/examples tests/ui tests/crash/test_lambda_kills.py

test-repeat:  ## `make test` in a new clone, N times (10), every second time on a busy machine; tests/repeat.jsonl records it
	$(PYTHON) -m tests.repeat $(or $(N),10)

test-ui: $(READY)  ## The web page, also in a real Chromium, which has to be at /usr/bin/chromium or named by CHROMIUM
	$(TEST) tests/ui

test-all: dapr-sidecar  ## Both in one run: every engine and every kill
	$(TEST)

test-pythons: $(READY)  ## What another version of Python may break, on each supported one that is found
	$(BIN)/python -m tests.pythons

check: $(READY)  ## What CI runs besides the tests: format, lint, import direction, types, also of what the documents show
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m tests.typed

docs: $(READY)  ## The documentation as a site, in site/; a broken link, anchor or missing page fails it
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --strict

strands-suite: $(READY)  ## Strands' own tests with us on every agent, then with every call resumed
	$(BIN)/python -m pip install --quiet --requirement tests/strands_suite/requirements.txt
	$(BIN)/python -m tests.strands_suite.run

BOUNDARIES := $(addprefix tests/crash/,test_temporal_boundaries.py test_dapr_boundaries.py test_lambda_kills.py)

soak: dapr-sidecar  ## A long campaign of kills; KILLS=3000 by default, then every feature and every engine at every point, and runs of 10,000 turns
	$(BIN)/python -m tests.crash.soak $(or $(KILLS),3000)
	EVERY_POINT=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/contract/test_features.py $(BOUNDARIES)
	FULL_LENGTH=1 $(BIN)/python -m pytest -n 2 tests/contract/test_long_runs.py

bench: $(READY)  ## Plain Strands, ours and a bare commit, side by side; then encryption, and retention over 100,000 executions
	$(BIN)/python -m bench.run
	$(BIN)/python -m bench.encryption
	$(BIN)/python -m bench.prune

bench-quick: $(READY)  ## The same for 10 and 100 cycles
	$(BIN)/python -m bench.run --quick

bench-peers: $(PEERS_READY)  ## The same beside DBOS and LangGraph
	$(PEERS)/bin/python -m bench.peers

bench-temporal: $(PEERS_READY)  ## The same on Temporal, beside Temporal's own plugin for Strands
	$(PEERS)/bin/python -m bench.temporal

bench-lambda: $(READY) $(PEERS_LAMBDA_READY)  ## The same on AWS's local runner, beside pydantic-ai; LONG=--long: 10,000 cycles of ours
	$(BIN)/python -m bench.aws_lambda $(LONG)

bench-page: $(READY)  ## The web page over 100,000 executions, and over a run of 2,000 steps
	$(BIN)/python -m bench.page

bench-dapr: dapr-sidecar $(PEERS_DAPR_READY)  ## The same on sidecars of Dapr, beside diagrid's Strands runner
	$(BIN)/python -m bench.dapr

clean:  ## Remove what the targets made
	rm -rf $(VENV) $(VENV)-3.* $(DEMO) $(PEERS) $(PEERS_LAMBDA) $(PEERS_DAPR) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .cache/strands-suite site
