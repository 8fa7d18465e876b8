# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# See https://tech.davis-hansson.com/p/make/
SHELL := bash
.DELETE_ON_ERROR:
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables
MAKEFLAGS += --no-builtin-rules
MAKEFLAGS += --no-print-directory

# Set to use a different compiler. For example, `GO=go1.27.0 make test`.
GO ?= go

# It has gofumpt and staticcheck. The go command builds it once, and keeps it in its cache.
GOLANGCI_LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# What is installed and built for the tests.
BIN := .bin

# What `make test` builds and tests: what needs Go and nothing else. The slowest comes first.
QUICK := . ./cmd/... ./sqlitestore/... ./examples/failover ./...

# Flags of the simulator: see `go doc ./internal/sim/run`.
SIM ?=
# How long `make chaos` runs.
DURATION ?= 2m
# More flags for go test. For example, `make test TESTFLAGS='-run Lease'`.
TESTFLAGS ?=
# For one package. The longest ones cut networks and kill processes.
TEST_TIMEOUT ?= 40m
# With it a test fails if its tool or engine is missing; without it (`make test`, or a
# plain `go test`) that test is skipped with a reason.
TENURE_REQUIRE_ENGINES ?= 1
export GO DURATION TESTFLAGS TEST_TIMEOUT TENURE_REQUIRE_ENGINES

# No stamp of the revision: nothing reads it from a test's binary, and git refuses it
# in a checkout that belongs to another user, as in containers.
GOFLAGS ?=
GOFLAGS += -buildvcs=false
# And no debug information, a quarter of the work of the compiler and the linker. Stack
# traces do not need it.
GOFLAGS += -gcflags=all=-dwarf=false -ldflags=-w
export GOFLAGS

# Builds and tests collect garbage a quarter as often, for a sixth to a third less of the
# processor's time, unless it grows large. Measurements do not: see scripts/nightly.
test lint model simulator: export GOGC ?= 400
test lint model simulator: export GOMEMLIMIT ?= 4GiB

# The pattern `work` means every module of go.work; `./...` is the root module
# alone. golangci-lint knows directories only, so it gets what go.work uses.
MODULES := $(addsuffix /...,$(shell sed -n 's,^[[:space:]]\(\.[^[:space:]]*\)$$,\1,p' go.work))

# Targets run one after another, in the order written here: tests in real time must
# not disturb each other.
.NOTPARALLEL:
.PHONY: help test verify nightly setup lint fmt tidy sim clean

# part NAME begins a part of a target, so that the output shows what each costs.
part = @echo "==> $(1), at $$(date +%T)"

help: ## Describe the targets (default)
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "%-15s %s\n", $$1, $$2}'

# Slow tests are left to verify: see enginetest.MakeVerify. Tests of processes and files wait for
# nine tenths of their time: six packages, and eight tests of each, at a time. Vetting
# the command's modules takes 40 s of a processor, most of it for what they import, and the race
# detector needs a C compiler: verify has both.
test: ## Before each commit: run the tests that need only Go, and vet the root module
	$(call part,test)
	$(GO) vet ./...
	TENURE_REQUIRE_ENGINES= $(GO) test -vet=off -timeout $(TEST_TIMEOUT) -short -p 6 -parallel 8 $(TESTFLAGS) $(QUICK)

# Steps that only compute take the processor time that the tests leave, in their own process
# group, so that all of it ends if this is stopped. Their output comes at the end.
verify: test setup ## Before a change lands: test, lint, race detector, five engines, simulator, model, a minute of chaos
	@mkdir -p $(BIN)
	@set -m; TENURE_SPEC_SECONDS=5400 nice -n 19 $(MAKE) TEST_TIMEOUT=90m model simulator >$(BIN)/computed.log 2>&1 & computing=$$!; set +m; \
	trap 'kill -- -$$computing 2>/dev/null || true' EXIT; \
	failed=; $(MAKE) lint race stores service-clients short-chaos || failed=1; \
	case "$(firstword -$(MAKEFLAGS))$$failed" in *k*1) ;; *1) exit 1 ;; esac; \
	echo "==> what computes, at $$(date +%T)"; \
	wait $$computing || failed=1; cat $(BIN)/computed.log; [ -z "$$failed" ]
	$(call part,verified)

nightly: ## Each night and before a release: everything else, in parts of at most 90 minutes, such as make nightly-model
	@scripts/nightly

nightly-%:
	@scripts/nightly $*

# The steps of both are targets as well: `make race`, `make kills`, `make chaos`.
STEPS := $(shell sed -n 's/^\t\([a-z-][a-z-]*\)[^ a-z=-].*/\1/p' scripts/nightly)
.PHONY: $(STEPS)
$(STEPS): setup
	@scripts/nightly step $@

setup:
	@scripts/setup

lint: ## Format, code and go.mod files
	$(call part,lint)
	$(GOLANGCI_LINT) fmt --diff || { echo "run 'make fmt'" >&2; exit 1; }
	scripts/tidy --check
	GOWORK=off $(GO) mod tidy -C release -diff
	$(GOLANGCI_LINT) run $(MODULES)
	cd release && GOWORK=off $(GOLANGCI_LINT) run ./...

fmt: ## Format the code and order its imports
	$(GOLANGCI_LINT) fmt

tidy: ## Tidy go.mod and go.sum of all modules
	scripts/tidy

sim: ## Simulate schedules with faults until stopped: make sim SIM='-hours 8 -faults messages,pauses'
	$(GO) run ./internal/sim/run $(SIM)

spec: ## Check the model, its wrong variants, and traces of the code against it (TLC; needs Java)
chaos: ## Kill, stop and cut off real processes that contend for a lock (Linux)
bench: ## Compare with other lock clients, on one engine in one run

clean: ## Delete the installed tools and the cached test results
	rm -rf $(BIN)
	$(GO) clean -testcache
