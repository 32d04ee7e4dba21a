# `make run` and `make test` do all their own set-up; nothing is needed first but Python 3.11+, git and make.
PYTHON ?= python3
VENV   ?= .venv
ENGINES ?= .venv-engines
BIN    := $(VENV)/bin
QUIET  := --disable-pip-version-check --quiet
# A worker more than cores, up to four (tests/conftest.py), as many tests wait for processes of their own;
# a file stays on one worker, whose servers its tests share; the longest files come first (tests/durations.tsv).
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# A part of all tests, about 30 minutes on two cores: make test-all SHARD=2/3
SHARD ?=
PIP    := $(BIN)/python -m pip install $(QUIET) --constraint constraints.txt
# DVC runs `python -m posttrain ...`: that must be this environment's python.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run bytecode test test-core test-slice test-all test-engines lint docs package clean

run: $(VENV)/.installed
	posttrain run

# Once, as tests start hundreds of processes: where Python is told to write none, each would compile the tree.
bytecode: $(VENV)/.installed-test
	@python -m compileall -q posttrain tasks flows

test: $(VENV)/.installed-test bytecode
	python -m pytest -m "not slow" $(PARALLEL)

# The long tests of what the README promises first: in every .ci/run.
test-core: $(VENV)/.installed-test bytecode
	python -m pytest -m "slow and core" $(PARALLEL) --durations 10

# The other long tests, of which .ci/run takes a part by the commit.
test-slice: $(VENV)/.installed-test bytecode
	python -m pytest -m "slow and not core" $(PARALLEL) --durations 10 $(if $(SHARD),--shard $(SHARD))

# Writes how long tests took and, where a shard passed, its row of docs/shards.tsv: commit both.
test-all: $(VENV)/.installed-test bytecode
	python -m pytest $(PARALLEL) --record $(if $(SHARD),--shard $(SHARD))

# In an environment of its own: vLLM wants an older transformers, and a hundred packages that nothing else needs.
test-engines: export PATH := $(CURDIR)/$(ENGINES)/bin:$(PATH)
test-engines: $(ENGINES)/.installed
	$(ENGINES)/bin/python -m pytest -m engines
	$(ENGINES)/bin/python -m pytest tests/learning/engines tests/learning/models -m "not engines and not slow"

lint: $(VENV)/.installed-test
	ruff check . && ruff format --check . && mypy && lint-imports

# Strictly: a page, an anchor or a picture that is named and not there ends it. Needs no network.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict
	@echo "The site is in site/: open site/index.html, or serve it: python -m http.server -b 127.0.0.1 -d site"

# An sdist, and the wheel that is made of it alone: what an index would be given, into dist/.
package: $(VENV)/.installed-package
	rm -rf dist
	python -m build --outdir dist .
	twine check --strict dist/* && check-wheel-contents dist/*.whl

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "posttrain needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (a few minutes, once) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements-inspect.txt
	$(PIP) --editable '.[test]'
	$(PIP) --no-deps --requirement requirements-inspect.txt
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.installed-package: $(VENV)/.installed
	$(PIP) --editable '.[package]'
	@touch $@

$(ENGINES)/.installed: pyproject.toml constraints.txt requirements-engines.txt
	@echo "Installing vLLM and the project into $(ENGINES) (a few minutes, once) ..."
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install $(QUIET) --constraint constraints.txt --editable '.[test]'
	$(ENGINES)/bin/python -m pip install $(QUIET) --no-deps --requirement requirements-engines.txt
	@touch $@

clean:
	rm -rf $(VENV) $(ENGINES) .posttrain report.html site dist
