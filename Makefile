# Thin targets over CMake. `make help` lists them; BUILD, BACKEND, RANKS, TEXT and ARGS may be set.
BUILD ?= build
BACKEND ?= auto
RANKS ?= 4
TEXT ?=
JOBS ?= $(shell nproc)
CTEST_ARGS ?=

PROGRAM := $(BUILD)/bin/trireme
DEMO := runs/demo
# Open MPI refuses to start as root unless told twice; these lines are for tests and the demo only.
ifeq ($(shell id -u),0)
ROOT_ENV := OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
endif
MPIRUN := $(ROOT_ENV) mpirun --oversubscribe --bind-to none

.PHONY: help run test test-gpu build bench format lint install clean setup
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  settings: BUILD=$(BUILD) BACKEND=$(BACKEND) (auto, cpu, cuda) RANKS=$(RANKS) TEXT=file.txt"

setup: ## install the packages that are missing (Debian, Ubuntu), else list them
	@tools/setup.sh

build: setup ## configure and build $(BUILD)/bin/trireme
	@cmake -S . -B $(BUILD) -G Ninja -DTRIREME_BACKEND=$(BACKEND) $(CMAKE_ARGS) > $(BUILD).log 2>&1 \
	  || { cat $(BUILD).log; exit 1; }
	@grep -E '^-- (MPI|CUDA|Backend)' $(BUILD).log || true
	@cmake --build $(BUILD) -j $(JOBS)

$(PROGRAM): setup
	@$(MAKE) --no-print-directory build CMAKE_ARGS="-DTRIREME_TESTS=OFF $(CMAKE_ARGS)"

run: $(PROGRAM) ## train a byte-level model on text (TEXT=file for your own) with RANKS ranks
	@tools/demo.sh "$(PROGRAM)" "$(MPIRUN)" "$(RANKS)" "$(DEMO)" "$(TEXT)"

test: setup ## lint, build with the tests and run them
	@$(MAKE) --no-print-directory build CMAKE_ARGS="-DTRIREME_TESTS=ON $(CMAKE_ARGS)"
	@$(MAKE) --no-print-directory lint
	@$(ROOT_ENV) ctest --test-dir $(BUILD) --output-on-failure -LE gpu $(CTEST_ARGS)

test-gpu: ## run the tests that need a GPU; they skip visibly without one
	@$(ROOT_ENV) ctest --test-dir $(BUILD) --output-on-failure -L gpu $(CTEST_ARGS)

bench: $(PROGRAM) ## time operations and a whole training step on this machine
	@$(PROGRAM) bench ops
	@$(PROGRAM) bench step inputs/gpt2_124m.ini --batch.micro=4 --batch.global=4 --batch.sequence=256 --precision.compute=f32

format: ## format the sources in place
	@git ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

lint: ## formatting, layers, clang-tidy's short allow list
	@tools/lint.sh $(BUILD)

install: build ## install program, decks and docs under CMAKE_INSTALL_PREFIX
	@cmake --install $(BUILD)

clean: ## remove the build folder; runs stay
	@rm -rf $(BUILD) $(BUILD).log
