# The commands of this project; each is a script in scripts/ that says what it does at its top.
# PG chooses the PostgreSQL version of demo, test, lint, bench and conformance: 15, 16, 17 or 18.
PG ?= 15
PG_CONFIG ?= pg_config
RUNS ?= 1000000

.PHONY: help demo demo-stop test lint bench conformance fuzz install clean

help:
	@echo "make demo [PG=15]                 build, start a private server, enqueue sample jobs, show the outcome"
	@echo "make demo-stop                    stop that server and remove its data"
	@echo "make test [PG=15]                 run all tests"
	@echo "make lint [PG=15]                 check formatting and clippy"
	@echo "make bench [PG=15]                measure against awa's own clients"
	@echo "make conformance [PG=15]          run awa's own tests with the replacement attached, beside a run without"
	@echo "make fuzz [RUNS=1000000]          fuzz the CSV reader against the crate csv; RUNS=60s for a time"
	@echo "make install PG_CONFIG=/path      build and install into the server of that pg_config"
	@echo "make clean                        remove all that was built"

demo:
	@scripts/demo start $(PG)

demo-stop:
	@scripts/demo stop

test:
	@scripts/test $(PG)

lint:
	@scripts/lint $(PG)

bench:
	@scripts/bench $(PG)

conformance:
	@scripts/conformance $(PG)

fuzz:
	@scripts/fuzz $(RUNS)

install:
	@scripts/install "$(PG_CONFIG)"

clean: demo-stop
	@scripts/clean
