# Everything a person types. `make demo` and `make test` work on a fresh machine; `make build` is for work on the library.
#
#   PYTHON=python3.12 make test     another interpreter
#   FASTCONV_XLA_INCLUDE=DIR        XLA FFI headers for `make build` (default: those of the jaxlib pinned in pyproject.toml)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?=

SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE $(shell find csrc src -type f ! -name '*.so' ! -name '*.pyc')
INSTALLED := $(VENV)/.installed
DEVELOP := $(VENV)/.develop

.DEFAULT_GOAL := help
.PHONY: help demo test build lint format docs clean check

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile

check:
	@tools/check_machine.sh "$(PYTHON)" "$(VENV)"

$(BIN)/python:
	@tools/check_machine.sh "$(PYTHON)" "$(VENV)"
	"$(PYTHON)" -m venv $(VENV)

# The project as a user gets it: a wheel built in isolation from the sources here, with all that demo and tests use.
$(INSTALLED): $(BIN)/python $(SOURCES)
	@tools/check_machine.sh "$(PYTHON)" "$(VENV)"
	$(PIP) install --quiet --force-reinstall --no-deps .
	$(PIP) install --quiet "fastconv[cli,jax,test] @ file://$(CURDIR)"
	@touch $@

demo: $(INSTALLED)  ## install into .venv and run the main job: the seed benchmark and an unmodified JAX script
	$(BIN)/fastconv bench --suite seed
	@echo; echo "examples/seed_script.py, plain:"
	$(BIN)/python examples/seed_script.py
	@echo; echo "examples/seed_script.py, under fastconv run:"
	$(BIN)/fastconv run examples/seed_script.py

test: $(INSTALLED)  ## install into .venv and run the tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

build:  ## compile the library into src/fastconv, for work with PYTHONPATH=src
	@tools/build.sh "$(PYTHON)"

$(DEVELOP): $(INSTALLED)
	$(PIP) install --quiet "fastconv[dev,docs] @ file://$(CURDIR)"
	@touch $@

lint: $(DEVELOP)  ## ruff, pyright, clang-format: report only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	find csrc -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(DEVELOP)  ## ruff and clang-format: rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find csrc -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format -i

docs: $(DEVELOP)  ## the manual, in build/docs
	$(BIN)/sphinx-build -W -b html docs build/docs

clean:  ## remove .venv and everything built
	rm -rf $(VENV) build dist src/fastconv/libfastconv.so
