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

# Tools, each at one version, in a folder of the checkout. The version is part
# of the file's name, so that a new one is installed and an old one never run.
BIN := .bin
GOFUMPT_VERSION := v0.12.0
GOLANGCI_LINT_VERSION := v2.15.0
STATICCHECK_VERSION := v0.8.2
GOFUMPT := $(BIN)/gofumpt-$(GOFUMPT_VERSION)
GOLANGCI_LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
STATICCHECK := $(BIN)/staticcheck-$(STATICCHECK_VERSION)

# Two packages at a time: the tests start engines and processes of their own,
# and are timed for two cores.
TEST_PARALLEL ?= 2
# For one package. The longest ones cut networks and kill processes.
TEST_TIMEOUT ?= 15m
# Flags of the simulator: see `go doc ./internal/sim/run`.
SIM ?=
# How many schedules of the simulator `make test` runs; `make sim` goes on.
SEEDS ?= 100000
# How many random schedules of the library `make test` runs; `make schedules` goes on.
SCHEDULE_SEEDS ?= 200
# Packages that are not tested with the others: see the target.
ALONE := /bench$$ /bench/faults$$ /internal/itest/spec$$ /internal/itest/schedules$$
# Packages that compute, with one goroutine each: nothing for the race detector,
# which makes them five times slower.
SEQUENTIAL := ./internal/sim ./internal/itest/protocol ./shard/internal/plan/...
# Tests of engines through much code of the tests' own, which it slows as much. The
# store has others.
WITHOUT_RACE := ^TestAPI$$|^TestConformance$$/^SortKey$$
# More flags for go test. For example, `make test TESTFLAGS='-run Lease -v'`.
TESTFLAGS ?=

# With it a test that finds a tool or an engine missing fails; without it (a
# plain `go test`) that test is skipped with a reason.
TENURE_REQUIRE_ENGINES ?= 1

# The engines of the tests, started for a command and stopped after it. With
# TENURE_TEST_DYNAMODB=URL the tests of DynamoDB run on that endpoint instead.
TENURE_TEST_DYNAMODB ?=
ifeq ($(TENURE_TEST_DYNAMODB),)
WITH_ENGINES := scripts/engines run dynoxide dynalite --
else
WITH_ENGINES := env TENURE_TEST_DYNAMODB=$(TENURE_TEST_DYNAMODB)
endif

# No stamp of the revision: nothing reads it from a test's binary, and git
# refuses to give it in a checkout that belongs to another user, as in containers.
GOFLAGS ?=
GOFLAGS += -buildvcs=false
export GOFLAGS

# The pattern `work` means every module of go.work; `./...` is the root module
# alone. golangci-lint knows directories only, so it gets what go.work uses.
MODULES := $(addsuffix /...,$(shell sed -n 's,^[[:space:]]\(\.[^[:space:]]*\)$$,\1,p' go.work))
# What users on other systems compile.
PORTABLE := $(filter-out ./internal/itest/... ./internal/chaos/... ./interop/... ./bench/... ./bench/faults/...,$(MODULES))

.PHONY: help
help: ## Describe the targets (default)
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

.PHONY: test
test: ## Build, vet and test all modules, with the race detector
	scripts/setup
	$(GO) build work
	$(GO) vet work
	@# -vet=off: the line above has vetted, with all of vet's checks.
	packages=$$($(GO) list work | grep -v $(foreach p,$(ALONE),-e $(p)) | grep -vxF "$$($(GO) list $(SEQUENTIAL))"); \
	TENURE_REQUIRE_ENGINES=$(TENURE_REQUIRE_ENGINES) $(WITH_ENGINES) \
		$(GO) test -race -vet=off -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) -skip '$(WITHOUT_RACE)' $(TESTFLAGS) $$packages
	$(GO) test -vet=off -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(SEQUENTIAL)
	$(GO) test -vet=off -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./internal/itest/schedules -args -seeds $(SCHEDULE_SEEDS)
	TENURE_REQUIRE_ENGINES=$(TENURE_REQUIRE_ENGINES) $(WITH_ENGINES) \
		$(GO) test -vet=off -timeout $(TEST_TIMEOUT) -parallel 3 -run '$(WITHOUT_RACE)' $(TESTFLAGS) ./dynamostore
	@# What measures is not tested beside the others. And the fault table's clients are large: etcd and
	@# Kubernetes, with the race detector, take minutes to build. The simulator takes what they leave of
	@# the machine: they wait for most of their time.
	$(GO) build -o $(BIN)/simulator ./internal/sim/run
	nice -n 19 $(BIN)/simulator -seeds $(SEEDS) -all & simulator=$$!; \
	trap 'kill $$simulator 2>/dev/null || true' EXIT; \
	TENURE_REQUIRE_ENGINES=$(TENURE_REQUIRE_ENGINES) $(WITH_ENGINES) $(GO) test -vet=off -p 1 $(TESTFLAGS) ./bench ./bench/faults; \
	wait $$simulator
	@# TLC keeps the machine busy, which the tests of real time must not feel.
	scripts/spec ci
	TENURE_REQUIRE_ENGINES=$(TENURE_REQUIRE_ENGINES) $(GO) test -vet=off -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./internal/itest/spec
	@# The simulator finds every deliberate mistake in the core; and none without one, above.
	$(GO) test -vet=off -tags tenure_wrong $(TESTFLAGS) ./internal/sim
	$(GO) test -vet=off -tags tenure_wrong -run IsFound $(TESTFLAGS) .
	@# All 10,000 interleavings: with the race detector SQLite is too slow for them.
	$(GO) test -vet=off -run Interleavings $(TESTFLAGS) ./sqlitestore ./internal/itest/fence

.PHONY: lint
lint: $(GOFUMPT) $(GOLANGCI_LINT) $(STATICCHECK) ## Check format, code, go.mod files and other systems' builds
	@# The quick checks first. (No "tee /dev/stderr" here: it would truncate a log file.)
	files=$$($(GOFUMPT) -l .); test -z "$$files" || { echo "not formatted, run 'make fmt': $$files" >&2; exit 1; }
	scripts/tidy --check
	$(GOLANGCI_LINT) run $(MODULES)
	@# Newer than the one inside golangci-lint, and with its default checks.
	$(STATICCHECK) work
	GOOS=darwin $(GO) vet $(PORTABLE)
	GOOS=windows $(GO) vet $(PORTABLE)

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code and order its imports
	$(GOLANGCI_LINT) fmt

.PHONY: tidy
tidy: ## Tidy go.mod and go.sum of all modules
	scripts/tidy

.PHONY: sim
sim: ## Simulate schedules with faults until stopped: make sim SIM='-hours 8 -faults messages,pauses'
	$(GO) run ./internal/sim/run $(SIM)

# What `make schedules` runs: all of its flags are in the package's test.
SCHEDULES ?= -seeds 0

.PHONY: schedules
schedules: ## Run the library under random schedules until stopped: make schedules SCHEDULES='-for 8h'
	$(GO) test -count=1 -timeout 0 ./internal/itest/schedules -run 'TestSchedules$$' -v -args $(SCHEDULES)

# How long `make chaos` runs.
DURATION ?= 2m

.PHONY: spec
spec: ## Check the model, its wrong variants, and traces of the code against it (TLC; needs Java)
	scripts/spec check
	TENURE_REQUIRE_ENGINES=1 $(GO) test -count=1 -timeout 1h ./internal/itest/spec -schedules 20

.PHONY: faults
faults: ## Throw the same faults at Tenure and at other clients, and write docs/faults.md
	scripts/setup
	scripts/engines run dynoxide -- $(GO) run ./bench/faults -write

.PHONY: chaos
chaos: ## Kill, stop and cut off real processes that contend for a lock (Linux)
	scripts/setup
	scripts/engines install dynoxide
	$(GO) run ./internal/chaos -duration $(DURATION) -report chaos.html

.PHONY: bench
bench: ## Measure beside other lock clients, on one engine in one run
	scripts/setup
	scripts/engines run dynoxide -- $(GO) run ./bench -json bench/results.json -markdown docs/performance.md

.PHONY: sessions
sessions: ## Hold 100,000 locks under one session for five minutes; fail if that takes more than one write a heartbeat
	scripts/engines run dynoxide -- $(GO) run ./bench -sessions 100000 -for 5m

.PHONY: shards
shards: ## Kill, stop and restart workers of a group; fail if a partition is ever owned twice, or without an owner for too long
	scripts/setup
	scripts/engines run dynoxide -- $(GO) run ./bench -shards sqlite,dynamodb,simulator -json bench/shards.json -markdown docs/many.md

.PHONY: gobench
gobench: ## Run the Go benchmarks of all modules
	$(WITH_ENGINES) $(GO) test -run '^$$' -bench . -benchmem -p 1 work

.PHONY: engines-test
engines-test: ## Test the script that starts the engines (Linux)
	scripts/engines-test

.PHONY: engines
engines: ## Install the engines of the tests; scripts/engines starts and stops them
	scripts/engines install dynoxide dynalite

.PHONY: demo
demo: ## Show a crash and a polite end on this machine
	$(GO) run ./cmd/tenure demo

.PHONY: clean
clean: ## Delete the installed tools and the cached test results
	scripts/engines down
	rm -rf $(BIN)
	$(GO) clean -testcache

# install PACKAGE@VERSION as the target.
define install
	@mkdir -p $(BIN)
	GOBIN=$(abspath $(BIN)) $(GO) install $(1)
	mv $(BIN)/$(notdir $(firstword $(subst @, ,$(1)))) $@
endef

$(GOFUMPT):
	$(call install,mvdan.cc/gofumpt@$(GOFUMPT_VERSION))

$(GOLANGCI_LINT):
	$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION))

$(STATICCHECK):
	$(call install,honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION))
