# `make run` and `make test` do all their own set-up; nothing is needed first but Python 3.11+, git and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
# DVC runs `python -m posttrain ...`: that must be this environment's python.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run test test-all lint clean

run: $(VENV)/.installed
	posttrain run

test: $(VENV)/.installed-test
	python -m pytest -m "not slow"

test-all: $(VENV)/.installed-test
	python -m pytest

lint: $(VENV)/.installed-test
	ruff check . && ruff format --check . && mypy && lint-imports

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "posttrain needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (a few minutes, once) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) .posttrain report.html
