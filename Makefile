# Fresh machine: `make serve` and `make test` set up .venv and do the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
HOST   ?= 127.0.0.1
PORT   ?= 3000

.DEFAULT_GOAL := help
.PHONY: help serve test test-slow check format bench report lock clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit("Airlock needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	touch $@

# setuptools is pinned like everything else, so the build takes it from the environment instead of the newest one.
$(VENV)/.runtime: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet -c constraints.txt setuptools
	$(PIP) install --quiet --no-build-isolation -c constraints.txt -e .
	touch $@

# magika is installed for the ONNX file inside it; its own dependencies would put a second ONNX Runtime in place.
$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) install --quiet --no-build-isolation -c constraints.txt -e '.[train,ray,postgres,remote,dev]'
	$(PIP) install --quiet --no-deps -c constraints.txt magika
	touch $@

serve: $(VENV)/.runtime ## serve the embedded default bundle on HOST:PORT (127.0.0.1:3000)
	$(BIN)/airlock serve --host $(HOST) --port $(PORT)

test: $(VENV)/.dev ## run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.dev ## run the long and load tests
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## run every benchmark, one script a claim
	@set -e; for script in $(filter-out benchmarks/zoo.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

report: $(VENV)/.runtime ## the example report of the embedded default, report.html
	$(BIN)/python -m service.example_report --out report.html

lock: $(VENV)/.dev ## write constraints.txt from what is installed (both builds of ONNX Runtime)
	$(PIP) freeze --all --exclude-editable --exclude pip | sed -E 's/^(torch==[0-9.]+)\+.*/\1/; s/^onnxruntime-gpu==(.*)/onnxruntime==\1\n&/' > constraints.txt

clean: ## remove the environment and caches
	rm -rf $(VENV) .venv-bench build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
