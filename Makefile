# `make validate` and `make test` do all their own set-up; the second time they start at once.
PYTHON_ENV := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## only prepare: system packages, .venv, build
	@.ci/setup

validate: setup  ## run the Fortran step beside PyTorch and say whether it is right (ARGS="--size 64x96" etc.)
	@$(PYTHON_ENV) -m bridge.validate $(ARGS)

test: setup  ## all tests, on up to four cores (ARGS="-k name", ARGS="-n 0" for one process)
	@$(PYTHON_ENV) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

lint: setup  ## ruff for Python, fortitude for Fortran
	@$(PYTHON_ENV) -m ruff check .
	@.venv/bin/fortitude check --output-format concise fortran

clean:  ## remove what was built, not the virtual environment
	rm -rf build

.PHONY: help setup validate test lint clean
.DEFAULT_GOAL := help
