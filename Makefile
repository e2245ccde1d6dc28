# make run · make test · make test-fast · make test-jobs · make test-labs
# make test-calibration · make lint · make bench · make journeys
# make review-at-large · make review-trees
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The wizard with torch alone, and with what the documentation needs. Where everything is installed, nothing is added.
RUNNABLE := $(or $(wildcard $(STAMP)),$(VENV)/.runnable)
DOCUMENTED := $(or $(wildcard $(STAMP)),$(VENV)/.documented)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ARGS ?=

.PHONY: run install test test-fast test-jobs test-labs test-calibration journeys lint format bench review-at-large review-trees
.PHONY: calibrate text-model soak man docs bundle
.PHONY: assets clean

# ARGS: options and a command, such as learn; without a terminal the default is the demo.
run: $(RUNNABLE)
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/ddpwizard $(ARGS); else $(BIN)/ddpwizard --plain $(or $(ARGS),--demo); fi

install: $(STAMP)

$(VENV)/.runnable: EXTRAS := torch
$(VENV)/.documented: EXTRAS := docs
$(STAMP): EXTRAS := torch,serve,docs,dev
$(VENV)/.runnable $(VENV)/.documented $(STAMP): pyproject.toml constraints.txt __init__.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV); the first time takes minutes, most of them for torch" >&2
	@$(PIP) setuptools wheel
	@$(if $(findstring torch,$(EXTRAS)),$(PIP) torch numpy,:)
	@$(PIP) --no-build-isolation -e ".[$(EXTRAS)]"
	@mkdir -p $(VENV)/tree && ln -sfn ../.. $(VENV)/tree/ddpwizard
	@touch $@

# Four workers for two cores, as tests with child processes and timers wait; a worker without tests takes those of others.
test: install
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not jobs and not labs and not gpu and not calibration" $(ARGS)

test-fast: install
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not jobs and not labs and not gpu and not calibration and not slow" $(ARGS)

# Three tests at a time, as jobs wait part of the time; those that share a fixture of their file run on one worker. Tests
# that inspect all jobs of this machine are among them in namespaces of their own, or run last. ARGS may select none of
# those (exit code 5).
WITHOUT_NAMESPACES := $(shell unshare --pid --fork --mount-proc --kill-child true 2>&1 || echo no)
test-jobs: install
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder -m "jobs and not gpu and not calibration$(if $(WITHOUT_NAMESPACES), and not alone)" $(ARGS)
	$(if $(WITHOUT_NAMESPACES),$(BIN)/python -m pytest -m "jobs and alone and not gpu and not calibration" $(ARGS) || [ $$? -eq 5 ])

# Each lab fails for real, is diagnosed, and is repaired by the fix of its cause.
test-labs: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m labs $(ARGS)

# With RECORD_REFERENCES=1 it also records what it measures, in tests/plan/references.
test-calibration: install
	$(BIN)/python -m pytest -m "calibration and not gpu" $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/basedpyright

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# ARGS: names of journeys, default all. No other distributed job may run meanwhile.
journeys: install
	$(BIN)/python tests/journeys $(ARGS)

bench: install
	$(BIN)/python tests/bench $(ARGS)

# DIRS: clones or git directories. Findings in them are compared with tests/at_large/verdicts.tsv.
review-at-large: install
	$(BIN)/python tests/at_large $(DIRS)

# DIRS: trees of Python files, default the standard library and site-packages. ARGS: --all-about-ranks.
review-trees: install
	$(BIN)/python tests/soak/review_trees.py $(ARGS) $(DIRS)

soak: install
	$(BIN)/python -m pytest --hypothesis-profile=soak tests/logs/test_hostile_input.py tests/logs/test_free_text.py
	$(BIN)/python tests/soak/fuzz_logs.py $(ARGS)
	$(BIN)/python tests/soak/fuzz_flight_recorder.py $(ARGS)

# After a change of titles, symptoms, tells_apart or reports.
text-model: install
	$(BIN)/python tests/bench/train_text_model.py

# CASES: files of labelled cases, a JSON object with text, cause, also_ok and source in each line. ARGS: --write, -v.
calibrate: install
	$(BIN)/python tests/bench/calibrate.py $(CASES) $(ARGS)

# One archive in dist/ for machines without a registry. ARGS: --python-version 3.12.
bundle: install
	$(BIN)/python assets/make_bundle.py $(ARGS)

# The documentation site in build/site; every link is checked.
docs: $(DOCUMENTED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

# After a change of options or help texts.
man: install
	$(BIN)/python docs/make_man_page.py

assets: install
	$(BIN)/python assets/make_pictures.py

clean:
	rm -rf $(VENV) build dist *.egg-info
