# Everything runs in $(VENV), made once with $(PYTHON): the first supported Python found.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
PYTHON312 ?= python3.12
PYTHON313 ?= python3.13
VENV ?= .venv
TESTS ?= tests plugins contrib/null contrib/c_loops contrib/scalars
JOBS ?= 2
BACKEND ?= aot_eager
EXAMPLES ?= 300
MINUTES ?= 30
DRIFT_BACKEND ?= auto
COVERAGE_OF ?= core/guards/*,core/aot/partition/*,lowering/jitney_lowering/scheduler/*
# A minute's worth of every room: rules, packages, capture, guards, forward and backward, the registry, backends.
QUICK := tests/test_import_rules.py tests/test_packaging.py tests/test_errors.py \
	tests/capture/interpreter/test_breaks.py tests/capture/interpreter/test_control_flow.py \
	tests/capture/python/test_functions.py tests/capture/torch/test_modules.py \
	tests/guards/test_guards.py tests/aot/test_boxed.py tests/aot/partition/test_undefined_gradients.py \
	tests/backends/test_registry.py tests/backends/test_resolve.py tests/graph_compile/test_subgraphs.py \
	plugins/eager plugins/aot_eager plugins/llvm_cpu/tests/test_engine.py

BIN := $(VENV)/bin
# Of contrib/ comes along what needs nothing more than the core, and does not change torch for the whole process (Inductor).
PROJECTS := $(addsuffix /pyproject.toml,lowering numpy tools testing) $(wildcard plugins/*/pyproject.toml) $(addsuffix /pyproject.toml,contrib/null contrib/c_loops contrib/scalars)
READY := $(VENV)/.installed
CONTRIB := $(VENV)-contrib
ENGINES := $(CONTRIB)/.installed
BRIDGES := $(filter-out $(PROJECTS),$(wildcard contrib/*/pyproject.toml))
ECOSYSTEM := $(VENV)-ecosystem
LIBRARIES := $(ECOSYSTEM)/.installed
LINKS := build/typing

.PHONY: demo docs quick test wheels test-gpu engines test-contrib test-ecosystem lint format bench bench-cpu bench-gpu bench-breadth bench-breadth-gpu opinfo torch-tables fuzz faults hostile drift soak mutants coverage cpython test-pythons clean

demo: $(READY)
	$(BIN)/jitney demo

# Smoke tests, under a minute: what to run before each commit.
quick: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow" $(QUICK)

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) $(TESTS)

# All that needs a GPU: triton_gpu's tests on CUDA tensors, with more random kernels; then OpInfo, some 15 minutes with 8
# processes: make test-gpu JOBS=8 OPINFO="--fraction 0.1"
test-gpu: $(READY)
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available() and "torch finds no CUDA device")'
	JITNEY_TEST_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n $(JOBS) plugins/triton_gpu tests/backends tests/lowering
	$(BIN)/python benchmarks/opinfo.py --backend triton_gpu --device cuda --dtypes float32,bfloat16 --jobs $(JOBS) $(OPINFO)

# The documentation as a site in build/site, to be opened as files; a broken link is an error.
docs: $(VENV)/.docs $(LINKS)
	PATH="$(abspath $(BIN)):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo build/site/index.html

# Wheel and source archive of everything that is released, in dist/; tests/test_wheels.py installs and runs them.
wheels: $(READY)
	rm -rf dist
	$(BIN)/python .ci/wheels.py dist

# All of contrib/, with the engines that it bridges to: in a virtual environment that adds them to the packages of $(VENV).
engines: $(ENGINES)

test-contrib: $(ENGINES)
	$(CONTRIB)/bin/python -m pytest -n $(JOBS) contrib

# Programs of tests/ecosystem with the libraries that PyTorch users run, in a virtual environment that adds them to $(VENV);
# 2 GB, some minutes: make test-ecosystem PROGRAMS="-k lightning"
test-ecosystem: $(LIBRARIES)
	$(ECOSYSTEM)/bin/python -m pytest -n $(JOBS) tests/ecosystem $(PROGRAMS)

lint: $(READY) $(LINKS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/capture_time.py
	$(BIN)/python benchmarks/activation_memory.py

# llvm_cpu beside eager and torch.compile, an hour with two cores: make bench-cpu BENCH_CPU="--only softmax"
bench-cpu: $(READY)
	$(BIN)/python benchmarks/speed_cpu.py $(BENCH_CPU)

# triton_gpu beside eager and torch.compile on one GPU, ten minutes: make bench-gpu BENCH_GPU="--only softmax"
bench-gpu: $(READY)
	$(BIN)/python benchmarks/speed_gpu.py $(BENCH_GPU)

# 802 programs, half of which nobody looks at one by one, hours on two cores; timm's and torchvision's rows need a
# pip install --no-deps timm torchvision==0.28.0: make bench-breadth BREADTH="--seconds 600 --resume --half tuned"
bench-breadth: $(READY)
	$(BIN)/python benchmarks/speed_breadth.py $(BREADTH)

bench-breadth-gpu: $(READY)
	$(BIN)/python benchmarks/speed_breadth.py --device cuda --jobs $(JOBS) $(BREADTH)

# torch's OpInfo database through a backend, some 20 minutes with two processes: make opinfo BACKEND=llvm_cpu OPINFO="--ops 'linalg_.*'"
opinfo: $(READY)
	$(BIN)/python benchmarks/opinfo.py --backend $(BACKEND) --jobs $(JOBS) $(OPINFO)

# torch's tables of modules and optimizers, 16,500 cases, hours: make torch-tables BACKEND=llvm_cpu TABLES="--fraction 0.1 --seed 7"
torch-tables: $(READY)
	$(BIN)/python tests/differential/torch_tables.py --backend $(BACKEND) --jobs $(JOBS) $(TABLES)

# Generated programs on every backend that runs on the CPU; what fails is written to build/fuzz: make fuzz MINUTES=5
fuzz: $(READY)
	$(BIN)/python tests/differential/fuzz.py --minutes $(MINUTES) $(FUZZ)

# Faults on purpose, ten minutes (docs/reliability.md): make faults FAULTS="--times 1000 --seed 7" CACHE_FAULTS="--kills 500"
faults: $(READY)
	$(BIN)/python tests/faults/interrupts.py $(FAULTS)
	$(BIN)/python tests/faults/forks.py $(FORK_FAULTS)
	$(BIN)/python tests/faults/cache_files.py $(CACHE_FAULTS)
	$(BIN)/python tests/faults/raising.py $(RAISING_FAULTS)

# Files and names that are made to do harm, five minutes: make hostile HOSTILE_FILES="--times 1000" HOSTILE_NAMES="--times 99"
hostile: $(READY)
	$(BIN)/python tests/faults/hostile_files.py $(HOSTILE_FILES)
	$(BIN)/python tests/faults/hostile_names.py $(HOSTILE_NAMES)

# Thousands of training steps beside eager's, half an hour: make drift DRIFT="--steps 500 --models gpt --device cuda"
drift: $(READY)
	$(BIN)/python tests/differential/drift.py --backend $(DRIFT_BACKEND) $(DRIFT)

# Mixed traffic of several threads: memory, latencies, threads that stand still: make soak SOAK="--minutes 60 --threads 8"
soak: $(READY)
	$(BIN)/python tests/faults/soak.py $(SOAK)

# Would tests notice if guards, partition or schedule were a little wrong? An hour: make mutants MUTANTS="--sample 20 --seed 7"
mutants: $(READY)
	$(BIN)/python tests/mutation.py $(MUTANTS)

# Lines and branches that tests come to, of the code beside them: make coverage COVERED="tests/guards"
COVERED ?= tests/guards tests/aot/partition tests/lowering
coverage: $(READY)
	$(BIN)/python -m coverage run --branch --source=core,lowering --data-file=build/coverage -m pytest -q -n 0 -m "not slow" $(COVERED)
	$(BIN)/python -m coverage report --data-file=build/coverage --skip-covered --include="$(COVERAGE_OF)"

# CPython's own tests of the language, each method plain and compiled, ten minutes: make cpython CPYTHON="--modules test_dict"
cpython: $(READY)
	$(BIN)/python tests/cpython/run.py --jobs $(JOBS) $(CPYTHON)

# What depends on the version of Python, on the other supported ones, each in a virtual environment of its own.
PYTHONS_TESTS := tests/capture tests/guards tests/programs tests/runtime
test-pythons:
	$(MAKE) test VENV=.venv-3.12 PYTHON=$(PYTHON312) TESTS="$(PYTHONS_TESTS)"
	$(MAKE) test VENV=.venv-3.13 PYTHON=$(PYTHON313) TESTS="$(PYTHONS_TESTS)"

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

$(READY): pyproject.toml constraints.txt $(PROJECTS)
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found: make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]' $(foreach p,$(PROJECTS),-e $(dir $(p)))
	touch $@

$(ENGINES): $(READY) $(BRIDGES)
	test -x $(CONTRIB)/bin/python || $(BIN)/python -m venv $(CONTRIB)
	$(BIN)/python -c 'import site; print("import site;", *(f"site.addsitedir({d!r})" for d in site.getsitepackages()))' \
		> $$($(CONTRIB)/bin/python -c 'import site; print(site.getsitepackages()[0])')/base.pth
	$(CONTRIB)/bin/python -m pip install --quiet -c constraints.txt $(foreach p,$(BRIDGES),-e $(dir $(p)))
	touch $@

$(LIBRARIES): $(READY) tests/ecosystem/requirements.txt
	test -x $(ECOSYSTEM)/bin/python || $(BIN)/python -m venv $(ECOSYSTEM)
	$(BIN)/python -c 'import site; print("import site;", *(f"site.addsitedir({d!r})" for d in site.getsitepackages()))' \
		> $$($(ECOSYSTEM)/bin/python -c 'import site; print(site.getsitepackages()[0])')/base.pth
	$(ECOSYSTEM)/bin/python -m pip install --quiet -c constraints.txt -r tests/ecosystem/requirements.txt
	touch $@

# mypy does not follow setuptools' editable installs of a renamed folder; these links are what it reads.
$(LINKS): $(wildcard */pyproject.toml plugins/*/pyproject.toml contrib/*/pyproject.toml)
	mkdir -p $@
	ln -sfn ../../core $@/jitney
	for f in */jitney_*/__init__.py plugins/*/jitney_*/__init__.py contrib/*/jitney_*/__init__.py; do d=$$(dirname $$f); ln -sfn ../../$$d $@/$$(basename $$d); done
	touch $@

clean:
	rm -rf .venv .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
