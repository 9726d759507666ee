# SPDX-License-Identifier: MIT
# The thin front: every target forwards to CMake, ctest or a script. `make help` lists them.
#
# On a fresh Debian machine two commands do everything, and install what they lack:
#	make demo	the main job, live: stock Redis survives crashes under load
#	make test	all tests that this host can run

BUILD   ?= build
PRESET  ?= release
PREFIX  ?= /usr/local
JOBS    ?= $(shell nproc)
PYTHON  ?= python3
VENV    := .venv
CMAKE   ?= cmake
# Of the last `make install`; CMake's own list is without DESTDIR, and of the tests' installations.
INSTALLED ?= $(BUILD)/installed.txt

SH_FILES = $(shell git ls-files '*.sh' '.ci/run')

.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: build help deps demo test check bench lint tidy fmt dev asan tsan install uninstall \
	clean distclean

build: $(BUILD)/build.ninja ## Build everything into build/ (bin/cairn, lib/libcairn.*, the agent)
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

# Packages that have come since may bring a compiler or a library that was missing: look again.
$(BUILD)/build.ninja: $(wildcard /var/lib/dpkg/status)
	@scripts/install_deps.sh --check build
	@$(CMAKE) $(if $(wildcard $(BUILD)/CMakeCache.txt),,--preset $(PRESET)) -B $(BUILD)

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

deps: ## Install what building, testing and the demo need (apt; root or sudo)
	@scripts/install_deps.sh build test
	@scripts/install_deps.sh --optional servers qemu
	@scripts/install_deps.sh --optional compiler
	@scripts/install_deps.sh --optional compiler-19
	@scripts/install_deps.sh --optional compiler-32

demo: ## Stock Redis survives crashes under load (installs what it lacks)
	@scripts/install_deps.sh build demo
	@$(MAKE) --no-print-directory build
	@$(PYTHON) scripts/demo.py --build $(BUILD)

test: ## All tests that this host can run (installs what they lack)
	@scripts/install_deps.sh build test
	@scripts/install_deps.sh --optional servers qemu
	@scripts/install_deps.sh --optional compiler
	@scripts/install_deps.sh --optional compiler-19
	@scripts/install_deps.sh --optional compiler-32
	@$(MAKE) --no-print-directory build
	@$(PYTHON) scripts/build_musl.py --build $(BUILD) || echo "cairn: its tests are skipped"
	@$(PYTHON) scripts/run_tests.py --build $(BUILD)

check: build ## The quick tests: under a minute, no privileges needed
	@$(PYTHON) scripts/tidy.py
	@$(PYTHON) scripts/run_tests.py --build $(BUILD) --label 'quick|unit'

bench: ## Measure (about an hour; BENCH=part, ROUNDS=n, QUICK=1, FRESH=1, STRATEGIES=a,b), results/ and a report
	@scripts/install_deps.sh build bench
	@scripts/install_deps.sh --optional servers hmmsearch
	@scripts/install_deps.sh --optional compiler $(if $(findstring lmc,$(BENCH)),programs)
	@$(if $(findstring lmc,$(BENCH)),scripts/install_deps.sh --optional compiler-32)
	@$(MAKE) --no-print-directory build
	@$(VENV)/bin/python bench/run.py --build $(BUILD) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(QUICK),--quick) $(if $(FRESH),--fresh) $(if $(STRATEGIES),--strategies $(STRATEGIES)) $(BENCH)

lint: tidy ## Rules of the tree, warnings as errors, shell scripts
	@scripts/install_deps.sh lint
	@shellcheck $(SH_FILES)
	@$(CMAKE) --preset dev && $(CMAKE) --build build-dev -j $(JOBS)

tidy: ## Rules of the tree that a script checks: includes, names, licences, dead files
	@$(PYTHON) scripts/tidy.py

fmt: ## Format the lines of C that you have changed since the last commit
	@scripts/install_deps.sh lint
	@git clang-format-14 --binary clang-format-14 --extensions c,h || true

dev: ## Debug build into build-dev/ with every assertion and -Werror
	@$(CMAKE) --preset dev && $(CMAKE) --build build-dev -j $(JOBS)

asan: ## Unit and interface tests and the oracle under AddressSanitizer and UBSan (build-asan/)
	@scripts/install_deps.sh build test
	@$(CMAKE) --preset asan && $(CMAKE) --build build-asan -j $(JOBS)
	@$(PYTHON) scripts/run_tests.py --build build-asan

tsan: ## The threaded tests of libcairn under ThreadSanitizer (build-tsan/)
	@scripts/install_deps.sh build test
	@$(CMAKE) --preset tsan && $(CMAKE) --build build-tsan -j $(JOBS)
	@$(PYTHON) scripts/run_tests.py --build build-tsan \
		--regex '^(unit.session_protect|api)' \
		--exclude '(hostile.(variables|counting_threads|storing_handler|page_zero)|remapped.(by_(grand)?child|after_many_births|born_within))'

install: build ## Install under PREFIX (/usr/local); DESTDIR is honoured
	@$(CMAKE) --install $(BUILD) --prefix $(PREFIX)
	@sed 's|^|$(DESTDIR)|' $(BUILD)/install_manifest.txt > $(INSTALLED)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then PATH="$$PATH:/sbin:/usr/sbin" ldconfig; fi

uninstall: ## Remove what the last `make install` from this tree installed
	@test -f $(INSTALLED) || { echo "nothing was installed from $(BUILD)"; exit 1; }
	@xargs -d '\n' rm -vf < $(INSTALLED)
	@sed -n 's|/[^/]*$$||p; s|/[^/]*$$||p' $(INSTALLED) | grep /cairn | sort -ur | \
		xargs -r -d '\n' rmdir --ignore-fail-on-non-empty 2>/dev/null || true
	@rm $(INSTALLED)

clean: ## Remove the build trees
	@rm -rf build build-dev build-asan build-tsan

distclean: clean ## Also remove results/, build-programs/ and the Python environment
	@rm -rf results build-programs $(VENV)
