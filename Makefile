# `make validate` and `make test` do all their own set-up; the second time they start at once.
PYTHON_ENV := .venv/bin/python
FLANG := flang-22
KERNELS := fortran/cuda/kernels/kernels
# Compiled modules are kept, whatever the environment says: tests start many a Python, and pytest rewrites all of theirs
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH)

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## only prepare: system packages, .venv, build
	@.ci/setup

test-setup:
	@.ci/setup tests

validate-setup:
	@.ci/setup validate

validate: validate-setup  ## run the Fortran step beside PyTorch and say whether it is right (ARGS="--size 64x96" etc.)
	@$(PYTHON_ENV) -m bridge.validate $(ARGS)

# Up to four processes; one that has nothing left to do takes over tests of another
PYTEST = $(PYTHON_ENV) -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal --durations 30

docs-setup:
	@.ci/setup docs

docs: docs-setup  ## the documentation as a site, into site/; warnings and wrong links are errors
	@NO_MKDOCS_2_WARNING=1 $(PYTHON_ENV) -m mkdocs build
	@echo "the site is in site/index.html"

test: test-setup  ## the tests of what a change usually breaks (ARGS="-k name", ARGS="-n 0" for one process)
	@$(PYTEST) -m "not deep" $(ARGS)

test-deep: test-setup  ## all other tests: sanitizers, planted mistakes, every failure, ... (ARGS as for `make test`)
	@$(PYTEST) -m deep $(ARGS)

# What hangs most on the processor: kernels and loops, and the judge's names for what PyTorch computes otherwise there
CAP = avx2
CAPPED = cpu/test_capped.py cpu/test_instruction_sets.py cpu/test_kernels.py operations/test_host_loops.py \
  judge/measure/test_fast_statistics.py judge/arithmetic/test_algorithm.py judge/arithmetic/test_graph_operands.py \
  judge/diagnosis/test_unfolded.py

test-capped: test-setup  ## some tests as on a processor without AVX-512 (CAP=baseline: without AVX2, too; ARGS as for `make test`)
	@$(PYTHON_ENV) -m tests.helpers.capped $(CAP) $(PYTEST) -m "not deep" $(addprefix tests/,$(CAPPED)) $(ARGS)

lint: test-setup  ## ruff and mypy for Python; fortitude, and flang where it is, for Fortran
	@$(PYTHON_ENV) -m ruff check .
	@$(PYTHON_ENV) -m mypy
	@.venv/bin/fortitude check --output-format concise fortran
	@$(PYTHON_ENV) .ci/lint_flang.py

kernels:  ## compile the CUDA Fortran kernels anew, to the PTX that is tracked (flang 22 or newer)
	@python3 fortran/cuda/kernels/build_kernels.py --compiler $(FLANG) $(KERNELS).cuf $(KERNELS).ptx

doctor: setup  ## what works on this machine, what does not, and what would help (ARGS="--device cuda" etc.)
	@$(PYTHON_ENV) -m bridge.doctor $(ARGS)

gpu-check:  ## all that only a GPU can show; without one it says so (ARGS="--stages tests,validate" etc.)
	@.ci/gpu tests benchmarks.gpu_check $(ARGS)

bench: setup  ## speed and memory beside PyTorch, JAX and the machine's peak (ARGS="step layers", "--quick" etc.)
	@$(PYTHON_ENV) -m benchmarks $(ARGS)

gpu-bench:  ## a training step on a GPU beside PyTorch and its roofline; without one it says so (ARGS="--minutes 25" etc.)
	@.ci/gpu "" benchmarks.gpu_bench $(ARGS)

wheels: setup  ## wheels that need nothing beside, into dist/ (ARGS="python3.12 python3.13": for these, else for .venv's)
	@$(PYTHON_ENV) distribution/wheels.py $(ARGS)

sdist: setup  ## the sources of the last commit, into dist/: pip builds a wheel from them anywhere
	@$(PYTHON_ENV) -c "import pathlib, mesonpy; pathlib.Path('dist').mkdir(exist_ok=True); mesonpy.build_sdist('dist')"

clean:  ## remove what was built, not the virtual environment
	rm -rf build site

.PHONY: help setup validate-setup test-setup docs-setup docs validate test test-deep test-capped lint kernels doctor gpu-check bench gpu-bench wheels sdist clean
.DEFAULT_GOAL := help
