# tpuc: what can be made. `make help` lists the targets.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z_\/-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv and install the pinned dependencies

# The stamp is written last, so that an interrupted install is taken up again.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[compile,zoo,dev]'
	touch $@

.PHONY: help setup
