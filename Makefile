# make demo   set up, build two indexes of 20,000 English words, compare them (WORDS="ocean piano" picks the words)
# make check  set up, then run linters, the type checker and quick tests: what to run while you work
# make test   set up, then run every check and test
# make docs   build the site of the documentation in build/docs/html; a warning is an error
# make test-engines   export to engines that need environments of their own, and search with them; Java and Go examples
# make install-library   build the reader as a C library and install it under PREFIX (/usr/local), with header and pkg-config file
# make lucene-jar   build what `indexmill export --to lucene` runs; needs a JDK and Maven
# make test-aarch64   run the reader's tests on an emulated 64-bit ARM CPU (CONTRIBUTING.md says what to install)
# make sanitize   run the reader's tests, and hostile inputs for its parsers, under AddressSanitizer
# make miri   run the unit tests of the reader's core in Miri; needs nightly Rust with miri and rust-src, and takes hours
# make fuzz   fuzz every parser of the reader for SECONDS=30 each (TARGETS="graph ids" picks some); needs cargo-fuzz

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST := $(shell find reader \( -path reader/target -o -path reader/fuzz \) -prune -o \( -name '*.rs' -o -name 'Cargo.*' -o -name 'cbindgen.toml' \) -print)
KERNELS := $(shell grep -rl --include='*.py' @kernel builders layout formats)
CARGO := cargo --quiet
WORDS ?=
SECONDS ?= 30
TARGETS ?= $(basename $(notdir $(wildcard reader/fuzz/fuzz_targets/*.rs)))

# Processes that run tests; each module's tests are in one, and all of Ray's. One that dies or hangs ends the run.
PROCESSES ?= 2
PYTEST = $(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder --max-worker-restart=0

# Byte code is kept, also where the environment says otherwise: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

PREFIX ?= /usr/local
# release, or dev: quick to build, slow to search with
PROFILE ?= release

# Commands that `make test-engines` needs, and the packages they come in.
ENGINE_TOOLS := python3.11:python3.11-venv javac:openjdk-17-jdk-headless jshell:openjdk-17-jdk-headless mvn:maven \
go:golang-go cc:gcc pkg-config:pkg-config
LUCENE := formats/exports/lucene
BUILT := $${CARGO_TARGET_DIR:-reader/target}/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

# $(call by-apt,PACKAGES,CONSEQUENCE): installs packages where apt may, else says how and what comes of it.
define by-apt
if ! command -v apt-get >/dev/null; then may=; elif [ "$$(id -u)" = 0 ]; then may=env; \
elif sudo -n true 2>/dev/null; then may="sudo -E"; else may=; fi; \
install="apt-get install --yes --no-install-recommends $(1)"; \
if [ -n "$$may" ]; then $$may apt-get update --quiet && $$may $$install; else echo "$(2): sudo $$install"; fi
endef

.PHONY: demo check test lint quick unit ecosystem rust cargo chromium docs test-engines engine-tools lucene-jar install-library \
test-aarch64 sanitize miri fuzz clean

demo: $(VENV)/.runtime
	@$(BIN)/python -m indexmill.jobs.demo $(WORDS)

# Two cores are busy throughout: mypy, numba's compiler and much of cargo take one thread each.
check: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 lint quick

# Rust's tests are compiled, and Chromium is fetched, while Python's packages are installed.
test:
	@$(MAKE) --no-print-directory --jobs=3 rust chromium lint $(VENV)/.kernels
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory ecosystem

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.kernels chromium
	$(PYTEST)

quick: $(VENV)/.kernels
	$(PYTEST) -m "not (kill or ray or memory or browser or bench or slow)"

# Tests that take packages which the others must not find: where pandas is installed, pyarrow imports it into every process,
# whose memory tests measure. They are installed before the other packages, in an environment that sees those, too.
ECOSYSTEM := $(VENV)/ecosystem
ecosystem: $(VENV)/.ecosystem $(VENV)/.kernels
	$(ECOSYSTEM)/bin/python -m pytest -q tests/jobs/api/test_pandas.py tests/jobs/api/test_data_sets.py tests/jobs/api/test_umap.py

$(VENV)/.ecosystem: $(VENV)/.dev
	$(BIN)/python -m venv --without-pip $(ECOSYSTEM)
	$(BIN)/python -c "import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')" \
	> $$($(ECOSYSTEM)/bin/python -c "import site; print(site.getsitepackages()[0])")/development.pth
	$(BIN)/pip --python $(ECOSYSTEM)/bin/python install --quiet --no-compile --group ecosystem
	@touch $@

# Kernels compiled once here, not by each test process.
$(VENV)/.kernels: $(VENV)/.dev $(KERNELS)
	$(BIN)/python -m tests.support.kernels
	@touch $@

# Tests of report pages fail without it; they are not skipped.
chromium: export DEBIAN_FRONTEND = noninteractive
chromium:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi; \
	$(call by-apt,chromium chromium-driver,chromium and chromedriver are missing; tests of report pages will fail; install them)

# Rust's tests read thousands of pages past the page cache. Their files lie in memory, if a GiB is free there and programs,
# which documentation tests are, may run from it. Those that compare engines lie on a disk, which checks direct reads.
IN_MEMORY := $(shell test "$$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 1048576 2>/dev/null && \
! findmnt --noheadings --output OPTIONS /dev/shm | grep --quiet --word-regexp noexec && echo /dev/shm)

# The Python binding has no tests of its own in Rust. tests/reader/test_capi.py builds what this built.
rust: TESTED = --workspace --exclude indexmill-py
rust: cargo
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check --manifest-path reader/Cargo.toml; \
	else echo "rustfmt is not installed: format check skipped"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
	$(CARGO) clippy --locked --all-targets --manifest-path reader/Cargo.toml -- -D warnings; \
	else echo "clippy is not installed: lint skipped"; fi
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --package indexmill-core --manifest-path reader/Cargo.toml
	$(CARGO) package --locked --no-verify --allow-dirty --package indexmill-core --manifest-path reader/Cargo.toml
	$(if $(IN_MEMORY),TMPDIR=$(IN_MEMORY)) cargo test --quiet --locked $(TESTED) --manifest-path reader/Cargo.toml
	$(if $(IN_MEMORY),cargo test --quiet --locked -p indexmill-core --test all --manifest-path reader/Cargo.toml engine)

# The report of the demonstration is part of the site. It is made anew only when build/docs is deleted.
DOCS := build/docs
docs: $(VENV)/.docs $(DOCS)/extra/demo/index.html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs $(DOCS)/html
	@echo "open $(DOCS)/html/index.html"

$(DOCS)/extra/demo/index.html: | $(VENV)/.docs
	$(BIN)/python -m indexmill.jobs.demo --out $(DOCS)/demo
	mkdir -p $(@D)
	cp $(DOCS)/demo/report/index.html $@

# Clients of the engines are installed below .engines (INDEXMILL_ENGINES), each at a fixed version.
test-engines: $(VENV)/.dev engine-tools
	$(BIN)/python -m pytest -q tests/engines

engine-tools: export DEBIAN_FRONTEND = noninteractive
engine-tools:
	@missing=; for tool in $(ENGINE_TOOLS); do command -v $${tool%%:*} >/dev/null || missing="$$missing $${tool#*:}"; done; \
	if [ -n "$$missing" ]; then $(call by-apt,$$missing,tools of the engines are missing and their tests will fail; install them); fi

lucene-jar:
	mvn --quiet --batch-mode --file $(LUCENE)/pom.xml package

install-library:
	cd reader && $(CARGO) build --locked --profile $(PROFILE) -p indexmill-capi
	@abi=$$(sed -n 's/^#define IM_ABI_VERSION //p' reader/capi/include/indexmill.h) && \
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' reader/Cargo.toml) && to="$(DESTDIR)$(PREFIX)" && \
	install -d "$$to/include" "$$to/lib/pkgconfig" && \
	install -m 644 reader/capi/include/indexmill.h "$$to/include/" && \
	install -m 755 "$(BUILT)/libindexmill.so" "$$to/lib/libindexmill.so.$$abi" && \
	ln -sf "libindexmill.so.$$abi" "$$to/lib/libindexmill.so" && \
	install -m 644 "$(BUILT)/libindexmill.a" "$$to/lib/" && \
	sed "s|@PREFIX@|$(PREFIX)|; s|@VERSION@|$$version|" reader/capi/indexmill.pc.in > "$$to/lib/pkgconfig/indexmill.pc" && \
	echo "installed under $$to: include/indexmill.h, lib/libindexmill.so.$$abi, lib/libindexmill.a, lib/pkgconfig/indexmill.pc"

# The emulator lacks calls of the kernel that engines of reads make.
test-aarch64: ARM_TESTS = cargo test --locked --manifest-path reader/Cargo.toml -p indexmill-core --target aarch64-unknown-linux-gnu
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -L /usr/aarch64-linux-gnu
test-aarch64:
	$(ARM_TESTS) --lib -- --skip engine::
	$(ARM_TESTS) --test all search::

# Records and corpora are kept. The last line tells of findings, failed tests and reports, and the logs are beside them.
FUZZ = $(BIN)/python -m indexmill.jobs.bench.fuzz --out reader/target/fuzz
sanitize miri: $(VENV)/.dev
	$(FUZZ) --parts $@

comma := ,
space := $(subst ,, )
fuzz: $(VENV)/.dev
	$(FUZZ) --seconds $(SECONDS) --parts $(subst $(space),$(comma),$(strip $(TARGETS)))

cargo:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.89 or newer (https://rustup.rs), then run make again"; exit 1; }

$(VENV)/bin/python: | cargo
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml $(RUST)
	$(BIN)/pip install --quiet --editable .
	@touch $@

# In one go, and without byte code of the thousands of modules that no test imports.
$(VENV)/.dev: $(VENV)/bin/python pyproject.toml $(RUST)
	$(BIN)/pip install --quiet --no-compile --editable '.[dev,hdf5,plots,ray,serve,sklearn]'
	@touch $(VENV)/.runtime $@

$(VENV)/.docs: $(VENV)/.runtime
	$(BIN)/pip install --quiet --editable '.[docs,sklearn]'
	@touch $@

clean:
	rm -rf $(VENV) .engines build reader/target $(LUCENE)/target demo-out
