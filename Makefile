# The front door. Each target sets up what it needs: a machine with Python 3.11 and pip is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready

.PHONY: help demo demo-temporal test test-long test-all test-pythons check docs strands-suite bench bench-quick bench-peers bench-temporal soak clean

help:  ## What there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml tests/temporal/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --require-hashes --requirement tests/temporal/requirements.txt
	@touch $@

$(PEERS_READY): pyproject.toml tests/temporal/requirements.txt  # apart: what they require is not what the tests are run with
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS)/bin/python -m pip install --quiet --editable '.[dev,peers,peers-temporal]'
	$(PEERS)/bin/python -m pip install --quiet --require-hashes --requirement tests/temporal/requirements.txt
	@touch $@

demo: $(READY)  ## Kill a travel agent in the middle of a booking, and resume it
	$(BIN)/strands-durable demo

demo-temporal: $(READY)  ## The same on a Temporal server of its own
	$(BIN)/strands-durable demo --backend temporal

# Four at a time on two cores, since many tests wait for processes and servers.
TEST := $(BIN)/python -m pytest -n 4 --dist worksteal

test: $(READY)  ## What a change usually breaks, in under ten minutes on two cores
	$(TEST) -m "not long"

test-long: $(READY)  ## The rest: fleets of workers, and kills, freezes and outages on Temporal
	$(TEST) -m long tests/crash

test-all: $(READY)  ## Both in one run: every engine and every kill
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

soak: $(READY)  ## A long campaign of kills; KILLS=3000 by default, then every feature at every point, and runs of 10,000 turns
	$(BIN)/python -m tests.crash.soak $(or $(KILLS),3000)
	EVERY_POINT=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/contract/test_features.py tests/crash/test_temporal_boundaries.py
	FULL_LENGTH=1 $(BIN)/python -m pytest -n 2 tests/contract/test_long_runs.py

bench: $(READY)  ## Plain Strands, ours and a bare commit, side by side
	$(BIN)/python -m bench.run

bench-quick: $(READY)  ## The same for 10 and 100 cycles
	$(BIN)/python -m bench.run --quick

bench-peers: $(PEERS_READY)  ## The same beside DBOS and LangGraph
	$(PEERS)/bin/python -m bench.peers

bench-temporal: $(PEERS_READY)  ## The same on Temporal, beside Temporal's own plugin for Strands
	$(PEERS)/bin/python -m bench.temporal

clean:  ## Remove what the targets made
	rm -rf $(VENV) $(VENV)-3.* $(PEERS) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .cache/strands-suite site
