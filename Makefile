# Two commands on a fresh machine with Python 3.11 or newer: `make start` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= auto
SPARK_TESTS := $(addprefix tests/spark/test_,reading_with_spark.py reading_batches.py reading_streams_before_limits.py pushed_filters.py writer.py)
LEVELS := PYTHONPATH=tests JOBS=$(JOBS) $(BIN)/python -m levels
SEEDS ?= 1000
FIRST ?= 1
SECONDS ?= 300
ROUNDS ?= 10
KILLS ?=
SUITES ?=
MUTANTS ?=
GENERATED ?= --every 4
VERSIONS ?= 4.0 4.1 4.2
EXTRAS ?=
STEPS ?=

# Tests start thousands of processes; with cached bytecode a broker starts with a third of the CPU time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help start demo interop apicurio spark-versions check test proof extras docs lint format bench bench-quick bench-baseline campaign mutants soak suites upgrade reference stubs census audit clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Moldau needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.core: pyproject.toml setup.py src/moldau/records/_codec_native.pyx src/moldau/records/_column_encoder.pxi src/moldau/records/_columns.pxi src/moldau/records/_latest.pxi src/moldau/records/_lines.pxi src/moldau/wire/_frames_native.pyx | $(BIN)/python
	@echo "installing Moldau into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing what the tests need into $(VENV)"
	@$(BIN)/python -m pip install --quiet --group test --group lint
	@touch $@

start: $(VENV)/.core ## Serve on 127.0.0.1:9092 (PORT=N: another port), data in ./moldau-data
	@$(BIN)/moldau start $(if $(PORT),--listen 127.0.0.1:$(PORT))

demo: $(VENV)/.dev ## A click stream through Spark: a derived feed and an offline load (about a minute)
	@$(BIN)/python examples/demo.py

interop: $(VENV)/.dev ## Spark's own Kafka connector, and Kafka's Java client, Streams and tools, where Maven has them
	$(BIN)/python -m pytest tests/interop

apicurio: $(VENV)/.dev ## A real schema registry, Apicurio's from Maven (110 MB), and our client of it
	mvn -q -B dependency:get -Dartifact=io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all -Dtransitive=false
	$(BIN)/python -m pytest -n 0 tests/interop/test_apicurio.py

$(VENV)-spark-%/.ready: pyproject.toml
	@echo "installing Moldau with Spark $* into $(@D)"
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(@D)/bin/python -m pip install --quiet --editable . --group test 'pyspark==$*.*'
	@touch $@

spark-versions: $(patsubst %,$(VENV)-spark-%/.ready,$(VERSIONS)) ## The Spark source with older versions of Spark: VERSIONS='4.0 4.1 4.2'
	set -e; for version in $(VERSIONS); do $(VENV)-spark-$$version/bin/python -m pytest -n 0 $(SPARK_TESTS); done

check: $(VENV)/.dev ## Two minutes for everyday work: lint, the tests without processes, 20 simulated clusters
	@$(LEVELS) check

test: $(VENV)/.dev ## Everything that a change has to pass: lint, and every test
	@$(LEVELS) test

proof: $(VENV)/.dev ## A night: 10,000 seeds, all mutants, soaks, the matrix, other Pythons and systems (STEPS='mutants soaks': some)
	@$(LEVELS) proof $(STEPS)

extras: | $(BIN)/python ## The built wheel with each extra alone, and the README as a script, in clean environments
	PYTHONPATH=src:tests $(BIN)/python tests/extras $(EXTRAS)

lint: $(VENV)/.dev ## Style, types and layers
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=tests $(BIN)/python -m stubs --check
	PYTHONPATH=tests $(BIN)/python -m compatibility --check
	PYTHONPATH=tests $(BIN)/python -m census --check

format: $(VENV)/.dev ## Put the code into shape
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

bench: $(VENV)/.dev ## Measure beside Kafka, Redis, NATS (an hour and a half; MINUTES=N bounds it; let nothing else run)
	$(BIN)/python -m bench $(if $(MINUTES),compare --minutes $(MINUTES))

bench-quick: $(VENV)/.dev ## Compare the instruction counts of hot paths with the baseline (two minutes)
	$(BIN)/python -m bench.quick

bench-baseline: $(VENV)/.dev ## Keep what bench-quick counts now as the baseline
	$(BIN)/python -m bench.quick --write

campaign: $(VENV)/.core ## Run SEEDS=N simulated clusters with faults, the first with seed FIRST=K
	$(BIN)/python -m moldau.simulation.campaign --seeds $(SEEDS) --first $(FIRST)

mutants: $(VENV)/.dev ## Break each rule on purpose and see who notices; MUTANTS='*lead*' some, SEEDS=N counts, GENERATED='storage --sample 50'
	@set -f; PYTHONPATH=tests $(BIN)/python -m mutants $(MUTANTS) $(if $(filter command environment,$(firstword $(origin SEEDS))),--seeds $(SEEDS))
	$(if $(MUTANTS),,PYTHONPATH=tests $(BIN)/python -m mutants generated $(GENERATED))

.PHONY: exactly-once
exactly-once: $(VENV)/.dev ## Kill workers of every client, and their brokers, ROUNDS=N times; with KILLS=N Spark drivers, too
	MOLDAU_EXACTLY_ONCE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -n 0 tests/system/test_cluster_exactly_once.py tests/interop/test_java_exactly_once.py
	$(if $(KILLS),MOLDAU_SPARK_KILLS=$(KILLS) $(BIN)/python -m pytest --soak -n 0 tests/spark/test_exactly_once_kill.py)

soak: $(VENV)/.dev ## Move partitions for SECONDS=N while real brokers fail, twice, and write to a thousand of them (SEED=K asks for the same again)
	MOLDAU_SOAK_SECONDS=$(SECONDS) $(if $(SEED),MOLDAU_SOAK_SEED=$(SEED)) $(BIN)/python -m pytest --soak tests/system/test_cluster_soak.py

upgrade: $(VENV)/.dev ## Three brokers from commit FROM=... to this tree and back, one by one, while clients work
	PYTHONPATH=src:tests $(BIN)/python -m upgrade $(FROM) --back

suites: $(VENV)/.dev ## Other projects' test suites against Moldau's brokers; SUITES='franz-go kafka-python' runs some
	PYTHONPATH=tests $(BIN)/python -m suites $(SUITES)

reference: $(VENV)/.dev ## Write the generated pages and tables of the documentation anew from the declarations
	$(BIN)/python -m moldau.config.reference docs/configuration.md
	$(BIN)/python -m moldau.spark.options docs/spark.md
	PYTHONPATH=tests $(BIN)/python -m compatibility

$(VENV)-docs/.ready: pyproject.toml
	@echo "installing what the documentation needs into $(@D)"
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(@D)/bin/python -m pip install --quiet --group docs
	@touch $@

docs: $(VENV)/.dev $(VENV)-docs/.ready ## The documentation as a site, in ./site; links, and the files in deploy/, are checked
	$(VENV)-docs/bin/zensical build --clean --strict
	PATH=$(abspath $(VENV)-docs/bin):$$PATH $(BIN)/python -m pytest -q -n 0 tests/unit/test_documentation.py tests/unit/test_deploy_files.py

census: $(VENV)/.dev ## Modules, lines and imports of each package; the limits are in tests/census/limits.json
	@PYTHONPATH=tests $(BIN)/python -m census

stubs: $(VENV)/.dev ## Write the type stubs of the blocking client anew from the asynchronous classes
	PYTHONPATH=tests $(BIN)/python -m stubs

audit: $(VENV)/.dev ## Known vulnerabilities of what Moldau installs, by pip-audit; says so where its database cannot be reached
	@$(BIN)/python -m pip_audit --version >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet 'pip-audit>=2.7,<3'
	$(BIN)/python tests/audit

clean: ## Remove what make and the tests made
	rm -rf $(VENV) $(VENV)-docs $(VENV)-spark-* site .cache .levels .suites build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
	find src -name '_codec_native.c' -delete -o -name '_frames_native.c' -delete
