# `make demo` and `make test` do all the set-up: Python (3.11 or later), pip and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Extras of pyproject.toml to install. None of them brings CUDA unless asked for: `make test EXTRAS=dev,demo,cuda`.
EXTRAS ?= dev,demo
comma := ,
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
WORKERS ?= 2

# Data sets are looked for in the folder WISHFLOW_DATA; tests that need it skip where there is none.
ifeq ($(origin WISHFLOW_DATA),undefined)
ifneq ($(wildcard ../shared/data),)
export WISHFLOW_DATA := $(abspath ../shared/data)
endif
endif

# Compiled programs are kept between runs.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.jax_cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.5

.DEFAULT_GOAL := help
.PHONY: help install demo docs gallery test test-slow test-long test-all test-lowest bench stress reproduce-uci reproduce-beijing \
	lint format types

help:
	@echo "make demo      the models side by side on simulated data (figures in demo_output/)"
	@echo "make test      the tests, without the slow ones"
	@echo "make test-slow the slow tests, without the longest"
	@echo "make test-long the longest tests, which CI does not run"
	@echo "make test-all  all tests"
	@echo "make test-lowest  the tests with the lowest versions of all dependencies that are allowed"
	@echo "make bench     training steps beside those of other libraries (environments in .bench/; ARGS=--quick)"
	@echo "make stress    kills, hostile files and odd inputs in large numbers; goes on where it ended (ARGS=--help)"
	@echo "make reproduce-uci, make reproduce-beijing   the paper's experiments (studies/README.md; ARGS=--help)"
	@echo "make lint      ruff (lint and format) and the type checker, changing nothing"
	@echo "make format    let ruff repair and format the code"
	@echo "make types     the type checker alone"
	@echo "make docs      the documentation as a site (site/index.html); warnings are errors"
	@echo "make gallery   run the examples of docs/examples again: figures and printed lines (ARGS=01 for one of them)"
	@echo "make install   the virtual environment alone ($(VENV))"

install: $(STAMP)

# Where the venv module cannot bring pip (some Linux distributions split it off), the pip at hand installs one.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wishflow needs Python 3.11 or later, but $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m wishflow.cli demo

# The pages name the package's objects, but building the site does not import it.
$(VENV)/.installed-docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

gallery: $(STAMP)
	$(BIN)/python docs/gallery.py $(ARGS)

# A worker that is lost ends the run: with another in its place the rest of its file would be waited for in vain.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart=0

# In these tests types and shapes are checked at every call, which takes as long as the rest of a test. In all tests they
# are by `make test-all`, and by `make test` where ARGS say what to run.
TYPED := agreement reference estimators/test_forecaster.py estimators/test_regressors.py training/test_loop.py \
	$(patsubst %,test_%.py,accelerators annotations dynamics evidence fields filtering inducing kernels latent likelihoods linalg \
	linear_gaussian metrics models noise objectives parameters sdes solver)
TYPED := $(addprefix tests/,$(TYPED))

test: $(STAMP)
ifeq ($(strip $(ARGS)),)
	@status=0; set -x; \
	$(PYTEST) -m "not slow" --durations=20 $(TYPED) || status=$$?; \
	WISHFLOW_TEST_TYPES=0 $(PYTEST) -m "not slow" --durations=20 $(addprefix --ignore=,$(TYPED)) || status=$$?; \
	exit $$status
else
	$(PYTEST) -m "not slow" $(ARGS)
endif

# Most slow tests take long by themselves, and share little with others of their file: the next free worker takes them.
test-slow: $(STAMP)
	WISHFLOW_TEST_TYPES=0 $(PYTEST) --dist worksteal -m "slow and not long" --durations=60 $(ARGS)

test-long: $(STAMP)
	WISHFLOW_TEST_TYPES=0 $(PYTEST) -m long --durations=30 $(ARGS)

test-all: $(STAMP)
	$(PYTEST) $(ARGS)

# The lowest versions that pyproject.toml allows, resolved by uv, in an environment of its own. What old versions of
# libraries find deprecated in newer ones is not ours to mend.
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct -e ".[dev]"
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.jax_cache_lowest WISHFLOW_TEST_CACHE=$(CURDIR)/.jax_cache_lowest \
		.venv-lowest/bin/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart=0 -m "not slow" -W ignore::DeprecationWarning $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m studies.benchmarks.speed $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m studies.benchmarks.race)

stress: $(STAMP)
	$(BIN)/python -m studies.stress $(ARGS)

reproduce-uci: $(STAMP)
	$(BIN)/python -m studies.uci $(ARGS)

reproduce-beijing: $(STAMP)
	$(BIN)/python -m studies.beijing $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy
