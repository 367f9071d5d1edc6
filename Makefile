# Thin targets over CMake: `make help` lists them, and the settings that they take.
BUILD ?= build
BACKEND ?= auto
RANKS ?= 4
JOBS ?= $(shell nproc)
TEXT ?=
ARGS ?=
PREFIX ?=
SETUP ?= yes
CMAKE_ARGS ?=
# Tests are built for one GPU architecture, this machine's or Hopper's: three would double their build time.
TEST_GPU ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1 | tr -d .),90)
# Tests wait for processes more than they compute. A test of several ranks counts for two.
TEST_JOBS ?= 4
CTEST_ARGS ?=
MPIRUN ?= mpirun --oversubscribe --bind-to none

PROGRAM := $(BUILD)/bin/trireme
# What starts at once is built for the CPU where no GPU is to be seen, whether nvcc is here or not.
WANTED = $(BACKEND)
ifeq ($(BACKEND)$(wildcard /dev/nvidia0 /dev/dxg),auto)
run bench: WANTED = cpu
endif
# Open MPI refuses to start as root unless told twice: containers and continuous integration are root.
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests configure build build-tests run test test-launchers test-gpu fuzz bench format lint install clean

help: ## this list
	@echo "Trireme: GPT and Llama models over MPI. Targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'
	@echo "Settings (make run RANKS=2):"
	@echo "  RANKS=$(RANKS)         MPI ranks of the demo"
	@echo "  TEXT=file.txt   train the demo on this text"
	@echo "  ARGS=           more words for trireme train, as ARGS='--run.steps=100 --log.every=5'"
	@echo "  BACKEND=$(BACKEND)    auto (CUDA where nvcc is found), cpu or cuda"
	@echo "  BUILD=$(BUILD)     build folder; JOBS=$(JOBS) compilers, TEST_JOBS=$(TEST_JOBS) tests at a time; CMAKE_ARGS= CTEST_ARGS="
	@echo "  PREFIX= DESTDIR=  where make install puts things"
	@echo "  SETUP=no        look for no packages and install none"

setup: ## install the packages that the build needs (Debian, Ubuntu), elsewhere list them
	@[ $(SETUP) = no ] || tools/setup.sh build

setup-tests:
	@[ $(SETUP) = no ] || tools/setup.sh all

configure:
	@mkdir -p $(BUILD)
	@cmake -S . -B $(BUILD) -G Ninja -DTRIREME_BACKEND=$(BACKEND) $(CMAKE_ARGS) > $(BUILD)/configure.log 2>&1 \
	  || { cat $(BUILD)/configure.log; exit 1; }
	@grep -E '^-- (MPI|CUDA|CPU|Attention|GPU)' $(BUILD)/configure.log || true

build: setup ## configure and build $(BUILD)/bin/trireme
	@$(MAKE) --no-print-directory configure BACKEND=$(WANTED) CMAKE_ARGS="-DTRIREME_TESTS=OFF $(CMAKE_ARGS)"
	@cmake --build $(BUILD) -j $(JOBS)

build-tests: setup-tests
	@$(MAKE) --no-print-directory configure CMAKE_ARGS="-DTRIREME_TESTS=ON -DTRIREME_CUDA_ARCHITECTURES=$(TEST_GPU)-real $(CMAKE_ARGS)"
	@cmake --build $(BUILD) -j $(JOBS)

run: build ## train a byte-level Llama on real text, on 4 ranks: the demo
	@tools/demo.sh "$(PROGRAM)" "$(MPIRUN)" "$(RANKS)" "$(TEXT)" $(ARGS)

test: build-tests ## lint, build and run every test that needs no GPU
	@tools/lint.sh $(BUILD) recent
	@tools/fuzz.sh $(BUILD)
	@ctest --test-dir $(BUILD) -j $(TEST_JOBS) --output-on-failure -LE gpu $(CTEST_ARGS)
	@tools/print_measured.sh $(BUILD)

# What is built already is not configured anew: make test builds for other GPUs than make build.
test-launchers: $(if $(wildcard $(PROGRAM)),,build) ## run the job scripts on a real SLURM, Ray and emulated Kubernetes pods (installs them; root)
	@[ $(SETUP) = no ] || tools/setup.sh launchers
	@tests/launchers/run.sh "$(PROGRAM)"

test-gpu: build-tests ## run the tests that need a GPU; they skip visibly without one
	@tools/with_mps.sh ctest --test-dir $(BUILD) --output-on-failure -L gpu $(CTEST_ARGS)

fuzz: ## fuzz every parser for 10 minutes (FUZZ_SECONDS=600) with clang's libFuzzer
	@tools/fuzz.sh $(BUILD) --seconds $(or $(FUZZ_SECONDS),600)

bench: build ## time a whole training step beside this machine's matrix products
	@$(PROGRAM) bench step inputs/gpt2_124m.ini --batch.micro=4 --batch.global=4 --batch.sequence=256 --precision.compute=f32

format: ## format the sources in place
	@tools/lint.sh $(BUILD) format

lint: setup-tests ## check formatting, layers and clang-tidy's list on the whole tree
	@[ -e $(BUILD)/compile_commands.json ] || $(MAKE) --no-print-directory configure
	@tools/lint.sh $(BUILD) all

install: build ## install programs, decks and docs under PREFIX (default /usr/local)
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) $(if $(PREFIX),--prefix "$(PREFIX)")

clean: ## remove the build folder; runs stay
	@rm -rf $(BUILD)
