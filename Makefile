# Everything a person types. `make demo` and `make test` work on a fresh machine; `make build` is for work on the library.
#
#   make PYTHON=python3.12 test               another interpreter
#   make PYTEST_ARGS="-k padding" test        arguments for pytest
#   FASTCONV_XLA_INCLUDE=DIR make build       XLA FFI headers (default: those of the jaxlib pinned in pyproject.toml)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?=

SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE $(shell find csrc src -type f ! -name '*.so' ! -name '*.pyc')
CXX_FILES = $(shell find csrc tests -name '*.cc' -o -name '*.h')
# A stamp per Python version, so that another PYTHON makes the environment anew.
PYTHON_READY := $(VENV)/.python-$(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
WHEEL := build/wheel/.built
INSTALLED := $(VENV)/.installed
LINTERS := $(VENV)/.linters
SPHINX := $(VENV)/.sphinx

.DEFAULT_GOAL := help
.PHONY: help demo test check-full wheel build lint format docs clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile

$(PYTHON_READY):
	@tools/check_machine.sh "$(PYTHON)"
	"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

# The project as a user gets it: a wheel built in isolation from the sources here, with all that demo and tests use.
$(WHEEL): $(SOURCES) | $(PYTHON_READY)
	@tools/check_machine.sh "$(PYTHON)"
	@rm -rf build/wheel
	$(PIP) wheel --quiet --no-deps --wheel-dir build/wheel .
	@touch $@

$(INSTALLED): $(WHEEL) $(PYTHON_READY)
	$(PIP) install --quiet "$$(ls build/wheel/fastconv-*.whl)[cli,jax,test]"
	$(PIP) install --quiet --no-deps --force-reinstall build/wheel/fastconv-*.whl
	@touch $@

demo: $(INSTALLED)  ## install into .venv and run the main job: the seed benchmark and an unmodified JAX program
	$(BIN)/fastconv bench --suite seed
	@printf '\nAn unmodified JAX program (examples/seed_script.py), as it is:\n'
	$(BIN)/python examples/seed_script.py
	@printf '\nThe same program under fastconv run:\n'
	$(BIN)/fastconv run examples/seed_script.py

test: $(INSTALLED)  ## install into .venv and run the tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check-full: $(INSTALLED)  ## soak between fences, sanitizers, NEON under qemu: half an hour
	@tools/check_full.sh

wheel: $(WHEEL)  ## build the wheel, in build/wheel

build:  ## compile the library into src/fastconv, for work with PYTHONPATH=src
	@tools/build.sh "$(PYTHON)"

$(LINTERS): $(INSTALLED) pyproject.toml
	$(BIN)/python tools/requirements.py lint | $(PIP) install --quiet -r /dev/stdin
	@touch $@

lint: $(LINTERS)  ## ruff, pyright and clang-format: report
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(LINTERS)  ## ruff and clang-format: rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

$(SPHINX): $(INSTALLED) pyproject.toml
	$(BIN)/python tools/requirements.py docs | $(PIP) install --quiet -r /dev/stdin
	@touch $@

docs: $(SPHINX)  ## the manual, in build/docs
	$(BIN)/sphinx-build -q -W -b html docs build/docs
	@echo build/docs/index.html

clean:  ## remove .venv and everything built
	rm -rf $(VENV) build dist src/fastconv/libfastconv.so
