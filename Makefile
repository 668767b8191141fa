# Two commands for a fresh clone:   make verify    make test
# Everything else is for work on the project itself; see CONTRIBUTING.md.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Small tensors: more threads per process only cost time (two processes share the cores).
export OMP_NUM_THREADS = 1
# Two hundred processes of the tests import the same modules, which are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup verify test lint types unit shapes nightly mutants deep realistic slices bench bench-descent adapters clean

help:
	@echo "make verify   set everything up and verify every statement on ten generated cases (EXAMPLES=50 for more)"
	@echo "make test     set everything up and run lint, types and the tests"
	@echo "make bench    timings: the runs of theorems bench, flows, paths, ATT-SVM against cvxpy, Dask against processes"
	@echo "make bench-descent  gradient descent and normalized gradient descent alone, in a minute"
	@echo "make adapters the tests on other libraries' attention, which it installs"
	@echo "make shapes   the tests with shapes and dtypes checked at every call (every night)"
	@echo "make nightly  the tests that try on all cases what make test tries on some (every night)"
	@echo "make mutants  mutation testing of reference_attention, or of PART=reference_attention.svm (every night)"
	@echo "make deep     2,000 random problems per statement (randomized; SEED=n to repeat or go on, ENGINE=dask://HOST:PORT)"
	@echo "make realistic 2,000 or 200 cases per statement of data as users have them, an hour; goes on where it stopped"
	@echo "make slices   each later paper deleted from a clone, and all other tests run there (every night; PAPERS=next_token for one)"
	@echo "make clean    remove the environment and the caches"

$(READY): pyproject.toml setup.py constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@$(BIN)/theorems --help > /dev/null
	@touch $@

setup: $(READY)

# About a minute on two cores; the command's own default is 50 examples.
verify: EXAMPLES := 10
verify: $(READY)
	@$(BIN)/theorems verify --examples $(EXAMPLES)

test: lint types unit

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

unit: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal

shapes: $(READY)
	@THEOREMS_TYPECHECK=1 $(BIN)/python -m pytest -n 2 --dist worksteal

nightly: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m nightly

# As mutmut names them: reference_attention.svm is a package, reference_attention.exact a module.
mutants: PART := reference_attention
mutants: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev,mutants]"
	@$(BIN)/mutmut run "$(PART).*"
	@$(BIN)/mutmut export-cicd-stats > /dev/null
	@$(BIN)/python -c 'import json; n = json.load(open("mutants/mutmut-cicd-stats.json")); \
	  k = n["killed"] + n["timeout"] + n["segfault"]; m = k + n["survived"] + n["suspicious"] + n["no_tests"]; \
	  print(f"$(PART): {k} of {m} mutants killed, {k / m:.1%}")'

deep: SEED := $(or $(SEED),$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
deep: ENGINE := local
deep: $(READY)
	@echo "If it is cut off, go on with: make deep SEED=$(SEED) ENGINE=$(ENGINE)"
	@$(BIN)/theorems verify --examples 2000 --seed $(SEED) --resume deep-$(SEED).jsonl --engine $(ENGINE)

# Statements of which 2,000 cases take a minute or two; the others take that for 200.
CHEAP := lemma-3 lemma-4 lemma-5 lemma-8 lemma-9 lemma-10 lemma-11 lemma-14 tsvm-rank tsvm-feasibility tsvm-risk-floor
realistic: $(READY)
	-@$(BIN)/theorems verify --realistic --examples 200 --seed 1 --resume realistic-200.jsonl --json realistic-200.json
	-@$(BIN)/theorems verify $(CHEAP) --realistic --examples 2000 --seed 1 --resume realistic-2000.jsonl --json realistic-2000.json
	@$(BIN)/python -m tests.realistic_table realistic-200.json realistic-2000.json

# The tests of each of these take as long as make test; those of documents speak of all papers.
PAPERS := transformers_as_svms steepest_descent next_token adaptive_methods
slices: $(READY)
	@for paper in $(PAPERS); do \
	  $(BIN)/python -m tests.without_a_paper $$paper -n 2 --dist worksteal --ignore=tests/attention_conformance || exit 1; done

bench: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	@$(BIN)/python -m pytest benchmarks -o python_files='bench_*.py' --benchmark-only --benchmark-columns=min,median,rounds --benchmark-sort=name

# Gradient descent and normalized gradient descent alone, in about a minute once everything is installed.
bench-descent: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	@$(BIN)/python -m pytest benchmarks/bench_descent.py -o python_files='bench_*.py' --benchmark-only --benchmark-columns=min,median,rounds --benchmark-sort=name -k "test_descent and (-gd-1] or -normalized-1])"

adapters: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev,adapters]"
	@$(BIN)/python -m pytest -m adapters

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks build mutants *.egg-info
