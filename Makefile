# tpuc: what can be made. `make help` lists the targets.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BUILD := build
# Tests of one file share what they compile. A process of them needs some 3 GiB.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z_\/%-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv and install the pinned dependencies

# timm asks for torchvision, which this torch has none of; its models do without (benchmarks/torchvision_stand_in.py).
# The stamp is written last, so that an interrupted install is taken up again.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[compile,zoo,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt timm
	touch $@

demo: $(STAMP)  ## Compile EfficientNet-Lite0 for cpu and v5e, and run it on a photograph
	mkdir -p $(BUILD)/demo
	$(BIN)/tpuc compile models/efficientnet_lite0.py --target cpu --target v5e -o $(BUILD)/demo/efficientnet_lite0.bin
	$(BIN)/python models/support/classify.py $(BUILD)/demo/efficientnet_lite0.bin

test: $(STAMP)  ## Run the tests
	$(BIN)/pytest $(PARALLEL) -m "not slow"

test-slow: $(STAMP)  ## Run the tests that take minutes or make environments of their own
	$(BIN)/pytest -m slow

test-dynamic: $(STAMP)  ## Compare programs of any size with eager, at every size
	$(BIN)/pytest tests/test_any_size.py tests/test_any_size_programs.py tests/test_any_size_models.py \
		tests/test_any_size_artifacts.py tests/passes

lint: $(STAMP)  ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Type checkers do not see that passes/ and runtime/ are packages of tpuc: they get a farm of links where they are.
FARM := $(BUILD)/typecheck
typecheck: $(STAMP)  ## Check types
	rm -rf $(FARM) && mkdir -p $(FARM)
	cp -rs $(CURDIR)/tpuc $(FARM)/tpuc
	cp -rs $(CURDIR)/passes $(FARM)/tpuc/passes
	cp -rs $(CURDIR)/runtime $(FARM)/tpuc/runtime
	cd $(FARM) && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml -p tpuc

# The model zoo. A record stands for its artifact, which is built anew when the model, or anything that compiles it,
# has changed.
TARGETS ?= cpu v5e
ZOO := $(BUILD)/zoo
MODELS := $(patsubst models/%.py,%,$(wildcard models/*.py))
ZOO_SOURCES := $(shell find tpuc passes runtime models/support models/data -type f ! -name '*.pyc') constraints.txt

# $(1): the model, $(2): the target.
define zoo_rule
$(ZOO)/$(1)/$(2).json: models/$(1).py $(ZOO_SOURCES) | $(STAMP)
	$(BIN)/python -m tpuc.zoo build $$< --target $(2) --output $(ZOO)/$(1)/$(2).bin
endef
$(foreach model,$(MODELS),$(foreach target,$(TARGETS),$(eval $(call zoo_rule,$(model),$(target)))))

# Builds what it can of the models $(1), with the jobs of this make (+), and fails after the report if one failed.
define build_zoo
+@$(MAKE) --no-print-directory --keep-going $(foreach model,$(1),$(TARGETS:%=$(ZOO)/$(model)/%.json)); \
	built=$$?; $(BIN)/python -m tpuc.zoo report $(ZOO) && exit $$built
endef

zoo: $(STAMP)  ## Build every model for TARGETS (default: cpu v5e), and report
	$(call build_zoo,$(MODELS))

zoo/%: $(STAMP)  ## Build one model for TARGETS, and report
	$(call build_zoo,$*)

# Each prints a table, and fails if a limit is not kept.
BENCHMARKS := program_quality start memory cpu llama dynamic passes

bench: $(STAMP)  ## Run every benchmark, one after the other
	@$(MAKE) --no-print-directory --keep-going --jobs=1 $(BENCHMARKS:%=bench-%)

bench-quality: bench-program_quality  ## Compare compiled programs with torch-mlir's and with JAX by hand

bench-%: $(STAMP)  ## Run one benchmark: start, memory, cpu, llama, dynamic, passes
	$(BIN)/python -m benchmarks.$*

coverage: $(STAMP)  ## Measure how much of PyTorch compiles, and write docs/coverage.md; started again, it goes on
	$(BIN)/python -m benchmarks.coverage run
	$(BIN)/python -m benchmarks.coverage report

clean:  ## Remove what was built, but not .venv
	rm -rf $(BUILD)

.PHONY: help setup demo test test-slow test-dynamic lint typecheck zoo bench bench-quality coverage clean
