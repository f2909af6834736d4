# make demo   set up, build two indexes of 20,000 English words, compare them (WORDS="ocean piano" picks the words)
# make test   set up, then run every check and test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST := $(shell find reader -path reader/target -prune -o \( -name '*.rs' -o -name 'Cargo.*' -o -name 'cbindgen.toml' \) -print)
CARGO := cargo --quiet
WORDS ?=

.PHONY: demo test lint unit rust clean

demo: $(VENV)/.runtime
	@$(BIN)/python -m indexmill.jobs.demo $(WORDS)

test: lint unit rust

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -q

rust: $(VENV)/.dev
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check --manifest-path reader/Cargo.toml; \
	else echo "rustfmt is not installed: format check skipped"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
	$(CARGO) clippy --locked --all-targets --manifest-path reader/Cargo.toml -- -D warnings; \
	else echo "clippy is not installed: lint skipped"; fi
	cargo test --locked --manifest-path reader/Cargo.toml

$(VENV)/bin/python:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.89 or newer (https://rustup.rs), then run make again"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml $(RUST)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/pip install --quiet --editable '.[dev,ray]'
	@touch $@

clean:
	rm -rf $(VENV) build reader/target demo-out
