# Everything runs in .venv, which `make` builds from Python 3.11+ and the package registry.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One worker more than there are processors, up to four: many tests wait for processes of their own.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)))')
# Tests start hundreds of processes: none of them should compile its modules again.
export PYTHONDONTWRITEBYTECODE :=
# Neighbours share servers that take seconds to start, so they stay together until somebody is idle.
PARALLEL := -n $(WORKERS) --dist worksteal
# Coverage has a bound in the pure rooms.  To measure it makes a test take half as long again, so
# it is measured only in their tests and in those of the services that carry them out.
MEASURED := $(addprefix tests/,core protocol contracts campaign participant serving) $(addprefix src/vfbandits/,core protocol)

.DEFAULT_GOAL := help
.PHONY: help demo test test-wheel test-long bench lint docs clean browser

help: ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "vfbandits needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable '.[fast,experiments,rpc,http,otel,sql,redis,noise]'
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt openmined-psi  # it asks for an old protobuf
	@touch $@

demo: $(READY) ## a federation of five processes, against a central bandit: plot and table in out/demo
	$(BIN)/vfb demo --out out/demo

# The page is tested in a real browser, and the registry of Python packages has none.
browser:
	@command -v chromium >/dev/null || { \
	  echo "installing chromium, in which the page is tested"; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes chromium; } >/dev/null || \
	  { echo "make test needs the command chromium and could not install it: install Debian's package chromium, or give apt-get the right to"; exit 1; }; }

test: $(READY) browser ## what CI runs
	$(BIN)/python tests/compiled_loops.py & loops=$$!; $(MAKE) --no-print-directory lint && wait $$loops
	VFBANDITS_COMPILED=0 $(BIN)/python tests/second_chance.py $(PARALLEL) -- --cov --cov-report= -m "not long" tests/core tests/contracts/test_layout.py tests/contracts/test_policy.py tests/journal/test_snapshot.py
	$(BIN)/python tests/second_chance.py $(PARALLEL) -- --cov --cov-append --cov-report= -m "not long" $(MEASURED)
	$(BIN)/python -m coverage report --skip-covered --include='src/vfbandits/core/*,src/vfbandits/protocol/*' --omit='*/kernels/[a-z]*.py' --fail-under=99
	$(BIN)/python tests/second_chance.py $(PARALLEL) -- -m "not long" $(MEASURED:%=--ignore=%)

test-wheel: $(READY) ## the wheel and the image in fresh environments: every row of docs/dependencies.md
	$(BIN)/python -m pytest tests/packaging

test-long: $(READY) browser ## a million updates, and thousands of fresh random worlds
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m pytest $(PARALLEL) -m long
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest $(PARALLEL) -m "not long" tests/core tests/contracts tests/journal tests/protocol

bench: $(READY) ## speed beside the textbook and the peers: out/benchmarks
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.losslessness
	$(BIN)/python -m benchmarks.criteo
	$(BIN)/python -m benchmarks.journal
	$(BIN)/python -m benchmarks.federation
	$(BIN)/python -m benchmarks.http
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.disjoint
	$(BIN)/python -m benchmarks.journey

lint: $(READY) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(READY) ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

clean: ## remove what make built
	rm -rf $(VENV) .venv-peers .venv-spu out site
