# `make` lists what can be made. Works with GNU make 3.81 (macOS) and newer.

VENV ?= .venv
BIN := $(VENV)/bin
PATHS ?= .
# several processes test, each takes whole files in the order of tests/support/ordering.py; ARGS="-n 0" for one
SHARED := -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

COMPILED := $(VENV)/.tests-compiled

export VENV

.DEFAULT_GOAL := help
.PHONY: help demo test tests test-fast lint format types imports programs soak bench-guard bench sandbox screenshots docs lock release install clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## grade the samples on this machine and keep serving; ONCE=1 stops after grading
	@scripts/bootstrap run
	@$(BIN)/grader demo$(if $(ONCE), --once)

test: ## everything CI runs: lint, types, import rules, all tests
	@scripts/bootstrap test
	@$(MAKE) -j2 --no-print-directory lint imports types tests

tests: install $(if $(ARGS),,$(COMPILED)) ## all tests, nothing else
	@echo "tests"
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(SHARED) $(ARGS)

# once an environment, as each of the processes that test would compile all; what changes later is little
$(COMPILED): | install
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -q -n 0 >/dev/null || true
	@touch $@

test-fast: install ## unit tests only, no services
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests/unit $(SHARED) $(ARGS)

lint: install ## style and likely bugs (ruff); PATHS=… for less
	@echo "lint"
	@$(BIN)/ruff check $(PATHS)
	@$(BIN)/ruff format --check $(PATHS)

format: install ## rewrite the code in the common format
	@$(BIN)/ruff check --fix $(PATHS)
	@$(BIN)/ruff format $(PATHS)

types: install ## static types (mypy --strict)
	@echo "types"
	@$(BIN)/mypy

imports: install ## which package may import which (import-linter)
	@echo "imports"
	@$(BIN)/lint-imports --no-logo

programs: install ## what the tests start (Redis, PostgreSQL, a browser, …), where it is missing
	@scripts/bootstrap test

soak: ## all tests with the long ones: kill loops, many examples; then bench-guard
	@scripts/bootstrap soak
	@HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -m "soak or not soak" --timeout 3600 $(ARGS)
	@$(BIN)/python -m bench.guard

bench-guard: install ## the main path beside that of the commit in bench/baseline.toml: at most 1.15 times
	@$(BIN)/python -m bench.guard

bench: install ## benchmarks; NAME=… for one, ARGS=--json for machines
	@$(BIN)/grader bench $(NAME) $(ARGS)

sandbox: ## the Python that students' work is run with, for servers
	@scripts/bootstrap sandbox

screenshots: ## pictures of the main pages, into var/screens and docs/screens; NAME=… for one
	@scripts/bootstrap test
	@$(BIN)/python scripts/screenshots var/screens $(NAME)

docs: install ## the site of docs/, into build/docs; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html"

lock: install ## solve the dependencies again; UPGRADE=1 takes the newest
	@scripts/lock $(if $(UPGRADE),--upgrade)

release: install ## what is published of the last commit, signed by RELEASE_KEY, into build/release
	@$(BIN)/python scripts/release

install: ## the environment for developing, without system packages
	@scripts/bootstrap develop

clean: ## remove the environment, caches and the demo's data
	@rm -rf $(VENV) .venv-bench .venv-soak .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
