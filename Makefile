# make demo   from a fresh clone to a measured lift: no key, no network beyond the package registries
# make test   everything CI runs
# make coverage   the tests again, with the lines that none of them reaches
# make weight   what each room weighs, and may; LOWER=1 writes today's numbers into weight.toml where they fell
# make site   the documentation as a site, in build/site
# make pictures   the pictures of README and docs, from recorded answers
# make constraints   the newest versions of everything that make test installs, into constraints.txt
# make kernel-students   grades recorded students of examples/h100-kernels and writes its table; GPU=--gpu: all tiers

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# What the tests use of the system, as program:Debian package. Installed when we are root and may; else those tests skip.
SYSTEM := bwrap:bubblewrap initdb:postgresql chromium:chromium chromium:fonts-dejavu-core

RUNS_AND_COMMANDS := $(addprefix tests/test_,store.py store_command.py sqlite.py postgres.py evaluate.py seen.py \
	replies.py receipt.py live.py editing.py cli.py)
$(foreach file,$(RUNS_AND_COMMANDS),$(if $(wildcard $(file)),,$(error $(file) is not there: take it out of RUNS_AND_COMMANDS)))

.PHONY: demo test newest coverage weight golden format lint types docs site pictures kernel-students pytest system constraints clean

demo: $(VENV)/.local
	$(BIN)/upskill eval examples/kernel-builder-cuda-kernels -m local

test: $(VENV)/.dev lint types docs site pytest

golden: $(VENV)/.dev
	GOLDEN=write $(BIN)/pytest -q --no-cov tests/test_golden.py
	git diff --stat -- tests/fixtures/golden

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_schemas.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/pyright

docs: $(VENV)/.dev
	$(BIN)/python docs/make_reference.py --check
	$(BIN)/python docs/make_schemas.py --check

weight: $(VENV)/.dev
	$(BIN)/python bench/weigh.py $(if $(LOWER),--lower)

site: $(VENV)/.docs
	$(BIN)/python docs/make_site.py

pictures: $(VENV)/.dev system
	$(BIN)/python docs/make_pictures.py

kernel-students: $(VENV)/.dev system
	$(BIN)/python bench/kernel_students.py $(GPU)

# Ray's threads outlive its shutdown and have crashed tests that came later, so its tests get a process of their own.
# A test that fails is run once more, alone: one that passes then depends on load, and is named. What failed without
# naming a test, such as a file that cannot be read, stays failed.
pytest: $(VENV)/.dev system
	$(BIN)/pytest --cache-clear -n logical --dist worksteal --ignore tests/test_ray.py || { test $$? = 1 && \
	  echo "Running what failed once more, alone." && $(BIN)/pytest --last-failed --last-failed-no-failures none --verbose; }
	$(BIN)/pytest -n 1 tests/test_ray.py

# What .ci/run does with another Python: runs, stores and commands.
newest: $(VENV)/.test system
	$(BIN)/pytest --cache-clear -n logical --dist worksteal $(RUNS_AND_COMMANDS) || { test $$? = 1 && \
	  echo "Running what failed once more, alone." && $(BIN)/pytest --last-failed --last-failed-no-failures none --verbose $(RUNS_AND_COMMANDS); }

coverage: $(VENV)/.dev system
	$(BIN)/pytest -n logical --dist worksteal --cov --cov-report= --ignore tests/test_ray.py
	$(BIN)/pytest -n 1 --cov --cov-append --cov-report=term tests/test_ray.py

system:
	@missing=; PATH="$$PATH:$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"; for pair in $(SYSTEM); do \
	  command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair#*:}"; \
	done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "not installed, so the tests that need them skip:$$missing"; \
	else \
	  echo "installing$$missing"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; } \
	    >/dev/null 2>&1 || echo "could not be installed, so the tests that need them skip:$$missing"; \
	fi

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "upskill needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.local: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing upskill and its embedded model's engine into $(VENV) (a minute or two the first time)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[local]"
	touch $@

$(VENV)/.test: $(VENV)/.local
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[local,postgres,test]"
	touch $@

$(VENV)/.docs: $(VENV)/.python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[docs]"
	touch $@

$(VENV)/.dev: $(VENV)/.local
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[local,dev]"
	touch $@

constraints: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable ".[local,dev]"
	sed -i '/^#/!d' constraints.txt && $(BIN)/python -m pip freeze --exclude-editable >> constraints.txt

clean:
	rm -rf $(VENV) .venv-* build .cache runs .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* dist
