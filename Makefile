# `make` prints what there is to do. Everything happens in .venv and in the jars' cache; `make clean` undoes the first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
UV := uv==0.13.9

# Containers often forbid Python to keep what it compiles: then each process of a test would compile all of this again.
export PYTHONDONTWRITEBYTECODE :=

# pip says only what went wrong.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --quiet --no-input
INSTALL := $(PIP) install --progress-bar off --no-deps --no-build-isolation

# The Java side of SQL. Where there is no javac it is not made, which a sentence says each time.
SQL_JAR := tablestore/spark/jvm/tablestore-spark-4.2.jar

.PHONY: help env jars versitygw dbt demo test test-fast test-pythons test-deep soak coverage mutants check format bench lock clean needs

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(BIN)/.installed $(SQL_JAR)  ## Make .venv from requirements.lock (once, about 2 minutes)

jars: env  ## Fetch Spark's and Kafka's jars (once, about 1 minute)
	@$(BIN)/python -m tablestore.jars

versitygw: env  ## Build an S3 server for the tests (once, with Go, about 3 minutes)
	@$(BIN)/python -m tests.servers.s3

dbt: env  ## Install dbt for the tests with it (once, about 3 minutes)
	@$(BIN)/python -m tests.servers.dbt

demo: env  ## Show what a table store does; ARGS=--s3: with S3, PostgreSQL, Kafka and a Spark cluster, all on this machine
	@$(BIN)/python -m tablestore.jars delta $(if $(filter --s3,$(ARGS)),s3a kafka)
	@$(if $(filter --s3,$(ARGS)),deploy/local.sh deploy/demo.sh --ship-packages,$(BIN)/tablestore demo) $(filter-out --s3,$(ARGS))

CORES := $(shell getconf _NPROCESSORS_ONLN)
# Two processes more than cores: tests with servers wait for them at times, and too many processes make all of them late.
WORKERS ?= $(shell expr $(CORES) + 2)
# Each takes three minutes, so only whole deep runs make them. Where they are not made their tests are skipped, and say so.
VERSITYGW := $(BIN)/python -m tests.servers.s3 || true
DBT := $(BIN)/python -m tests.servers.dbt || true
# JVMs start sooner with these. Where they cannot be made tests take longer. One takes half a minute of processor time, so
# the one of programs with settings of their own is for deep runs, which start many.
ARCHIVES := $(BIN)/python -m tests.servers.class_archive
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup

test: env jars  ## Run all tests, the same cases each time; ARGS="-k name" for some
	@$(ARCHIVES) kafka sql || true
	@$(PYTEST) $(ARGS)

test-fast: env  ## Run the tests that need no server and little time
	@TEST_DEPTH=fast $(BIN)/pytest -n $(shell expr $(CORES) + 1) -m "not slow and not kafka and not spark and not s3" $(ARGS)

# The whole fast suite in each; CI takes one of them each time, and what begins within minutes.
test-pythons: env  ## Run the tests that need no server in the other Pythons that are promised, where the machine has them
	@$(BIN)/python -m tests.pythons --uv $(UV) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

# What fails is kept in .hypothesis and fails again first in the next run; SEED repeats the draws of another run.
# With MINUTES no test begins later, and pytest-xdist must not begin with the servers that have most tests.
test-deep: SEED := $(or $(SEED),$(shell date +%s))
test-deep: env jars  ## Run all tests with all cases and new draws; SHARE=2/3 for a part of what goes deeper
	@echo "To repeat: make test-deep SEED=$(SEED)$(if $(SHARE), SHARE=$(SHARE))$(if $(ARGS), ARGS='$(ARGS)')"
	@$(ARCHIVES) || true
	@$(if $(SHARE),,$(VERSITYGW))
	@$(if $(SHARE),,$(DBT))
	@TEST_DEPTH=deep TEST_SHARE=$(SHARE) TEST_MINUTES=$(MINUTES) $(PYTEST) \
	    $(if $(MINUTES),--no-loadscope-reorder) --randomly-seed=$(SEED) --hypothesis-seed=$(SEED) $(ARGS)
	@$(if $(SHARE)$(MINUTES)$(ARGS),,$(BIN)/python -m tests.pythons --uv $(UV) --seed $(SEED))

soak: env jars  ## Write, follow and kill processes for ten minutes; ARGS=--s3: a whole deployment with S3 and a Spark cluster
	@$(if $(filter --s3,$(ARGS)),$(VERSITYGW))
	@$(BIN)/python -m tests.integration.soak $(ARGS)

coverage: export COVERAGE_FILE := $(CURDIR)/.coverage/data
coverage: env jars  ## Run all tests and list the lines and branches of the product that none of them reaches
	@$(ARCHIVES) || true
	@rm -rf .coverage; mkdir .coverage; status=0; \
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadgroup $(ARGS) || status=$$?; \
	find .coverage -size 0 -delete; \
	$(BIN)/coverage combine --quiet || true; $(BIN)/coverage report --show-missing || true; exit $$status

mutants: env jars  ## Apply small wrong changes, one by one: do tests notice them? ARGS="commit fold-02" for some
	@$(BIN)/python -m tests.mutants $(ARGS)

check: env  ## Lint, format, types, layers
	@echo "ruff check"; $(BIN)/ruff check --quiet .
	@echo "ruff format --check"; $(BIN)/ruff format --quiet --check . || { echo "Run: make format"; exit 1; }
	@echo "mypy --strict"; $(BIN)/mypy --no-error-summary
	@echo "mypy of the pages' blocks"; $(BIN)/python -m tests.docs.typed_pages
	@echo "lint-imports"; $(BIN)/lint-imports --no-logo

format: env  ## Format the code, and repair what ruff can repair
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

bench: env jars  ## Run the benchmarks; ARGS go to the first
	@$(BIN)/python -m tests.bench $(ARGS)
	@$(BIN)/python -m tests.bench.growth --spark || test $$? = 1
	@$(BIN)/python -m tests.bench.states
	@$(BIN)/python -m tests.bench.reads
	@$(BIN)/python -m tests.bench.log
	@$(BIN)/python -m tests.bench.latency
	@$(BIN)/python -m tests.bench.s3
	@$(BIN)/python -m tests.bench.sql
	@$(BIN)/python -m tests.bench.joins --spark
	@$(BIN)/python -m tests.bench.views
	@$(BIN)/python -m tests.bench.nexmark
	@$(BIN)/python -m tests.bench.lookups
	@$(BIN)/python -m tests.bench.temporal_joins

lock:  ## Write requirements.lock, the images' locks and dbt's anew from pyproject.toml; ARGS=--upgrade for newer versions
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder"; \
	"$$folder/bin/python" -m pip --quiet --disable-pip-version-check install $(UV); \
	compile() { env -u PIP_FIND_LINKS -u UV_FIND_LINKS "$$folder/bin/uv" --quiet pip compile "$$@" \
	    --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"; }; \
	compile pyproject.toml --all-extras --group dev $(ARGS) -o requirements.lock; \
	compile pyproject.toml -c requirements.lock --extra s3 --extra postgres -o deploy/service.lock; \
	compile pyproject.toml -c requirements.lock --extra s3 --extra postgres --extra spark --extra demo -o deploy/spark.lock; \
	echo setuptools > "$$folder/build.in"; \
	compile "$$folder/build.in" -c requirements.lock --no-annotate -o deploy/build.lock; \
	compile --group dbt $(ARGS) -o tests/servers/dbt.lock
	@if grep -nE '://|--(extra-)?index-url|--find-links' requirements.lock deploy/*.lock tests/servers/*.lock; then \
	    echo "A lock must name no server and no folder." >&2; exit 1; fi

clean:  ## Remove .venv, build folders and tools' caches (not the jars)
	@rm -rf .coverage .venv .venv-* build dist ./*.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The sentence comes before any work. Spark, Delta and Kafka's broker run on Java.
needs:
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=missing; \
	case $$version in missing|2.*|3.[0-9]|3.10) \
	    echo "Tablestore needs Python 3.11 or newer, and \`$(PYTHON)\` is $$version: install one and name it, as in \`make $(or $(MAKECMDGOALS),env) PYTHON=python3.11\`." >&2; \
	    exit 1;; esac
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -1) || version=; \
	if [ "$${version:-0}" -lt 17 ]; then \
	    echo "Tablestore needs Java 17 or newer, and \`$$java\` is $${version:-missing}: install one, for example \`apt install openjdk-17-jre-headless\`, or point JAVA_HOME at it." >&2; \
	    exit 1; fi

# What is in the lock, hashes compared. The few packages without a wheel are built with the lock's own setuptools.
$(BIN)/.locked: requirements.lock | needs
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@echo "Installing $$(grep -c '^[a-z].*==' $<) packages into .venv (once, about 2 minutes)…"
	@awk '/^[a-z]/ {wanted = /^setuptools==/} wanted' $< > .venv/setuptools.lock
	@$(INSTALL) --require-hashes -r .venv/setuptools.lock
	@$(INSTALL) --require-hashes -r $<
	@$(BIN)/python -m compileall -q -j 0 .venv/lib >/dev/null || true  # some packages hold templates, which are no Python
	@touch $@

$(SQL_JAR): $(wildcard tablestore/spark/jvm/src/tablestore/spark/*.java) $(BIN)/.installed
	@$(BIN)/python -m tablestore.spark.sql.jar

$(BIN)/.installed: $(BIN)/.locked pyproject.toml | needs
	@$(INSTALL) --editable .
	@touch $@
