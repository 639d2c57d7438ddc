# Everything a person needs; each target does its whole set-up itself and can be repeated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Written beside the archive of Spark's classes, once that is whole.
CLASSES := $(VENV)/spark-classes.place
JAR := src/varve/services/jvm/varve.jar
DAYS ?= 28
HOURS ?= 1
SEED ?= 1
KUBERNETES := 1.34
RENDERED := helm template varve deploy/helm --namespace data --kube-version $(KUBERNETES).0
# What runs in both modes of Spark: what asks Spark for schemas, writes, counts and failures. What is done with the
# batches afterwards is the same in both; `make torture` has the whole rooms in classic mode. Of Dagster's room only what
# meets a store.
STORES := tests/stores tests/sources tests/catalog tests/services
CLASSIC := tests/stores/test_stores.py tests/stores/lake/test_write.py tests/stores/lake/test_content.py \
  tests/stores/lake/test_projection.py tests/stores/lake/test_columns_read.py tests/stores/warehouse/test_load.py \
  tests/stores/warehouse/test_types.py tests/stores/warehouse/test_columns.py tests/sources tests/services \
  tests/sql/test_united_rows.py
DAGSTER := tests/dagster/test_atomic_publish.py tests/dagster/test_failures.py tests/dagster/test_reading.py
# Temporary files in memory, where there is enough of it.
IN_MEMORY := $(BIN)/python -m tests.support.in_memory

.DEFAULT_GOAL := help
.PHONY: help install demo ui test test-fast torture torture-long lint style types imports lint-deploy docs format bench bench-quick down \
  browser pooler prepared clean jar

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(INSTALLED) ## Set up .venv: Varve, its dependencies at pinned versions, and what the tests need

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Varve needs Python 3.11 or newer; say which: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing Varve, Spark, Dagster and what the tests need into $(VENV): two to three minutes the first time.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@# Where Python is told to write no bytecode, every process of a test would compile all of this again: 2 s each.
	@$(BIN)/python -m compileall -q -j 2 src pipeline_defs resources assets tests benchmarks
	@touch $@

$(CLASSES): $(INSTALLED) $(JAR)
	$(BIN)/python -m tests.support.class_archive

demo: $(INSTALLED) ## Real flights through the whole pipeline, then a correction that no reader notices (DAYS=28)
	$(BIN)/varve demo --days $(DAYS)

ui: $(INSTALLED) ## The Dagster UI with its daemon on 127.0.0.1:3000
	$(BIN)/varve ui

test: prepared ## The tests, on Spark Connect, then those of the stores again in classic mode
	$(IN_MEMORY) $(BIN)/pytest --numprocesses auto --durations 25
	$(IN_MEMORY) $(BIN)/pytest --numprocesses auto -m spark --spark-mode classic $(CLASSIC) $(DAGSTER)

test-fast: $(INSTALLED) ## The tests that need no server: a minute, while you write
	$(BIN)/pytest --fast --numprocesses logical

torture: prepared ## The tests that take minutes each: crashes, races, oracles over random histories and queries
	$(BIN)/pytest --slow --numprocesses 2
	$(BIN)/pytest --slow -m spark --spark-mode classic
	$(BIN)/pytest --numprocesses 2 -m spark --spark-mode classic $(STORES) $(DAGSTER)
	$(BIN)/python -m tests.torture.long --hours 0.17 --seed $(SEED)

torture-long: $(INSTALLED) $(CLASSES) ## Random programs over everything at once, with kills and readers (HOURS=1 SEED=1)
	$(BIN)/python -m tests.torture.long --hours $(HOURS) --seed $(SEED)

lint: style types imports docs ## Style, types, who may import whom, and the documents

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

prepared: $(INSTALLED) $(CLASSES) browser pooler # What `make test` needs, without the tests

lint-deploy: # deploy/, by hadolint, helm and kubernetes-validate, which must be on the PATH; RENDER=1 writes rendered.yaml anew
	hadolint deploy/images/*.Dockerfile
	helm lint deploy/helm --kube-version $(KUBERNETES).0
	@test -z "$(RENDER)" || $(RENDERED) > deploy/helm/rendered.yaml
	$(RENDERED) | diff deploy/helm/rendered.yaml -
	@# The pods of runs are made by Dagster, and pull their image with the same secrets as all others.
	test "$$($(RENDERED) --set images.pullSecrets[0].name=registry | grep -c -e imagePullSecrets: -e image_pull_secrets:)" = \
	  "$$(grep -c -e imagePullPolicy: -e image_pull_policy: deploy/helm/rendered.yaml)"
	kubernetes-validate --strict -k $(KUBERNETES) deploy/helm/rendered.yaml

docs: $(INSTALLED) ## The pages of docs/ as a site in .site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

jar: $(INSTALLED) ## Compile the Java of src/varve/services/jvm/source into varve.jar, which needs a JDK
	$(BIN)/python -m tests.support.jar

format: $(INSTALLED) ## Put the code into its canonical format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-quick: $(INSTALLED) ## Has something become slower? Small runs, ratios against those that are kept (five minutes)
	$(BIN)/python -m benchmarks.quick

bench: $(INSTALLED) ## What a run costs beside an empty one
	$(BIN)/python -m benchmarks.run_overhead

down: ## Stop the services that Varve has started
	@test ! -x $(BIN)/varve || $(BIN)/varve down

browser: # The UI tests drive Chromium; as root on Debian it is installed here, elsewhere it must be there
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  { echo "The UI tests need Chromium on the PATH; install it (Debian: apt-get install chromium)."; exit 1; }

pooler: browser # The tests of readers behind a pooler run a pgbouncer; installed in the same way, one after the other
	@command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq pgbouncer >/dev/null; } || \
	  { echo "The tests need pgbouncer; install it (Debian: apt-get install pgbouncer)."; exit 1; }

clean: down ## Stop the services and remove the environment and all data of the default home folder
	rm -rf $(VENV) .varve
