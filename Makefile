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
GOFUMPT := $(BIN)/gofumpt-$(GOFUMPT_VERSION)
GOLANGCI_LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)

# Where the modules stand that are not for users, and the tests that are run in
# another way than the rest.
EVIDENCE := ./evidence
BENCH := $(EVIDENCE)/bench
CROWD := $(EVIDENCE)/crowd
SHARDS := $(EVIDENCE)/shards
FAULTS := $(EVIDENCE)/faults
CHAOS := $(EVIDENCE)/chaos
SERVICE := $(EVIDENCE)/service
LOAD := $(EVIDENCE)/load
INTEROP := $(EVIDENCE)/interop
ITEST := ./internal/itest

# What `make test` builds and tests: what needs Go and nothing else. `make verify`
# has the other modules. What takes longest comes first.
QUICK := ./cmd/... ./sqlitestore/... ./examples/failover ./...
# Packages that compute, with one goroutine each: nothing for the race detector,
# which makes them five times slower. Those of the root module are tested by
# `make test`, as a whole.
SEQUENTIAL := ./internal/sim ./internal/house ./shard/internal/plan/... $(ITEST)/protocol
# Packages whose tests take hours of virtual time: with the race detector they run shorter
# ones, and at full length without it.
VIRTUAL := ./shard ./once
# The store whose engine takes long to build: more than 5 minutes on two cores; and the
# tests of other packages that want that engine, by their names.
KUBERNETES := ./k8sstore
ON_KUBERNETES := ^TestKubernetes
ON_KUBERNETES_IN := ./cmd/internal/cli ./cmd/internal/doctor ./adapters/controllerruntime
# The same of the evidence: the fault table's column, and a round of chaos, both in small. They
# want the machine for themselves.
ON_KUBERNETES_ALONE := $(FAULTS) $(CHAOS)
# The same of the gateway to files that speaks S3's protocol: 150 s of processor to build, and as
# many to run the tests of the library on buckets.
BUCKETS := ./s3store
# The same of stores whose client takes 40 s (Azure) or 130 s (Google) of processor to build, and
# more with the race detector: they are tested without it.
PLAIN_BUCKETS := ./azblobstore ./gcsstore
ON_BUCKETS := ^TestVersitygw|^TestAzurite|^TestFakeGCS
ON_BUCKETS_IN := ./cmd/internal/cli
# They want the machine for themselves.
ON_BUCKETS_ALONE := $(FAULTS) $(CHAOS)
# What `make verify` tests with the race detector: the core, and what stands on it.
RACE := . ./internal/protocol ./internal/shell ./once ./shard ./semaphore ./rwlock
# What takes longest with the race detector, so that nothing is left to run alone at the end.
LONGEST := ./cmd/internal/cli ./dynamostore ./sqlitestore ./pgstore
# Adapters whose libraries take long to build with the race detector: a minute and more.
HEAVY := ./adapters/clientgo/... ./adapters/controllerruntime/...
# Packages that `make nightly` runs in a way of their own.
APART := $(HEAVY) $(BENCH) $(CROWD) $(SHARDS) $(FAULTS) $(SERVICE) $(LOAD) $(ITEST)/spec $(ITEST)/schedules $(ITEST)/monitoring $(KUBERNETES) $(BUCKETS) $(PLAIN_BUCKETS)
# Stores whose engine is a server. The one that takes longest comes first.
STORES := ./dynamostore ./pgstore ./zkstore ./etcdstore
# Tests of engines through much code of the tests' own, which the race detector slows
# as much; the store has others. And days of slots, minute by minute.
WITHOUT_RACE := ^TestAPI$$|^TestConformance$$/^SortKey$$|^Test(Etcd|ZooKeeper|Postgres)Scripts$$|^TestMonth

# Three packages at a time on two cores: the tests start processes and engines of
# their own, and wait for three quarters of their time.
TEST_PARALLEL ?= 3
# Those with engines wait for still more of it.
RACE_PARALLEL ?= 4
# Within a package, `make test` runs four tests at a time: the command's scripts wait for nine
# tenths of their time, and took 228 s two at a time, 140 s four at a time.
WAITING := -parallel 4
# For one package. The longest ones cut networks and kill processes.
TEST_TIMEOUT ?= 40m
# Flags of the simulator: see `go doc ./internal/sim/run`.
SIM ?=
# How many schedules of the simulator `make verify` runs; `make sim` goes on.
SEEDS ?= 5000
# How many more of them have processes that take several locks at once; one in 16 of SEEDS does.
SETS ?= 400
# How many random schedules of the library a nightly run plays; `make schedules` goes on.
SCHEDULE_SEEDS ?= 200
# More flags for go test. For example, `make test TESTFLAGS='-run Lease'`.
TESTFLAGS ?=

# With it a test that finds a tool or an engine missing fails; without it (`make
# test`, or a plain `go test`) that test is skipped with a reason.
TENURE_REQUIRE_ENGINES ?= 1
REQUIRED := TENURE_REQUIRE_ENGINES=$(TENURE_REQUIRE_ENGINES)

# The engines of the tests, started for a command and stopped after it. With
# TENURE_TEST_DYNAMODB=URL the tests of DynamoDB run on that endpoint instead.
TENURE_TEST_DYNAMODB ?=
ENGINES := etcd zookeeper postgres
ifeq ($(TENURE_TEST_DYNAMODB),)
ENGINES := dynoxide dynalite $(ENGINES)
endif
WITH_ENGINES := $(REQUIRED) TENURE_TEST_DYNAMODB=$(TENURE_TEST_DYNAMODB) scripts/engines run $(ENGINES) --

# No stamp of the revision: nothing reads it from a test's binary, and git
# refuses to give it in a checkout that belongs to another user, as in containers.
GOFLAGS ?=
GOFLAGS += -buildvcs=false
# And nothing for debuggers: a quarter of what the compiler and the linker do. Stack traces
# need none of it.
GOFLAGS += -gcflags=all=-dwarf=false -ldflags=-w
export GOFLAGS

# What builds and tests collects garbage a quarter as often, for a sixth to a third less of the
# processor's time, unless it grows large. Nothing that measures does.
test release race race-all stores plain api model simulator virtual wrong-core wrong-processes lint: export GOGC ?= 400
test release race race-all stores plain api model simulator virtual wrong-core wrong-processes lint: export GOMEMLIMIT ?= 4GiB

# -vet=off: each of them is vetted before, with all of vet's checks, which are among those
# of `make lint`.
GOTEST := $(GO) test -vet=off -timeout $(TEST_TIMEOUT)

# The pattern `work` means every module of go.work; `./...` is the root module
# alone. golangci-lint knows directories only, so it gets what go.work uses.
MODULES := $(addsuffix /...,$(shell sed -n 's,^[[:space:]]\(\.[^[:space:]]*\)$$,\1,p' go.work))
# What users on other systems compile.
PORTABLE := $(filter-out $(addsuffix /...,$(EVIDENCE) $(FAULTS) $(ITEST)),$(MODULES))

# One thing after another, in the order that is written here: tests of real time
# must not feel each other.
.NOTPARALLEL:

# part NAME begins a part of a target, so that the output tells what each costs.
part = @echo "==> $(1), at $$(date +%T)"

# Set with `make -k`.
KEEP_GOING = $(findstring k,$(firstword -$(MAKEFLAGS)))

.PHONY: help
help: ## Describe the targets (default)
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | awk -F ':.*## ' '{printf "%-15s %s\n", $$1, $$2}'

# Other engines than SQLite are used if the environment names them, and their tests are
# skipped with a line that says how to get them if not. The race detector would need a
# C compiler.
.PHONY: test
test: ## Build, vet and test what needs Go and nothing else: the library, SQLite and the command
	$(call part,test)
	$(GO) build $(QUICK)
	$(GO) vet $(QUICK)
	TENURE_REQUIRE_ENGINES= $(GOTEST) -json -short -p $(TEST_PARALLEL) $(WAITING) $(TESTFLAGS) $(QUICK) | $(GO) run ./internal/skips

# The tests wait for most of their time. What computes alone takes what they leave of the
# processors, and none from them: see scripts/idle. What it prints comes at the end.
.PHONY: verify
verify: test setup ## Before a change lands: test, lint, race detector, four engines, simulator, model, a minute of chaos
	@mkdir -p $(BIN)
	@# In a group of its own, so that all of it ends if this is stopped.
	@set -m; TENURE_SPEC_SECONDS=5400 scripts/idle $(MAKE) TEST_TIMEOUT=90m model simulator >$(BIN)/computed.log 2>&1 & computing=$$!; set +m; \
	trap 'kill -- -$$computing 2>/dev/null || true' EXIT; \
	failed=; $(MAKE) lint race stores service-clients short-chaos || failed=1; \
	[ -z "$$failed" ] || [ -n "$(KEEP_GOING)" ] || exit 1; \
	echo "==> what computes, at $$(date +%T)"; \
	wait $$computing || failed=1; cat $(BIN)/computed.log; [ -z "$$failed" ]
	$(call part,verified)

# Each part writes its date, commit, minutes and result into docs/evidence/nightly.md.
.PHONY: nightly
nightly: ## Each night and before a release: all else, in parts of at most 90 minutes; make nightly-model is one
	@failed=; for p in $(NIGHTLY); do $(MAKE) nightly-$$p || failed="$$failed $$p"; done; \
	[ -z "$$failed" ] || { echo "these parts failed:$$failed" >&2; exit 1; }

nightly-race := race-all
nightly-engines := plain api measured
nightly-model := spec
nightly-simulator := million virtual month reader-schedules
nightly-mutants := wrong-core wrong-processes
nightly-chaos := DURATION=15m chaos service readers shards
nightly-kills := kills
nightly-interop := DURATION=10m interop
nightly-kubernetes := kubernetes
nightly-buckets := buckets
nightly-faults := faults
nightly-bench := bench native load sessions
nightly-release := release portable release-check
NIGHTLY := race engines model simulator mutants chaos kills interop kubernetes buckets faults bench release

.PHONY: $(addprefix nightly-,$(NIGHTLY))
$(addprefix nightly-,$(NIGHTLY)): nightly-%:
	@scripts/nightly $* $(nightly-$*)

.PHONY: setup
setup:
	@scripts/setup

# What holds locks, and what stands on it.
.PHONY: race
race: setup ## Of verify: the core, and what stands on it, with the race detector
	$(call part,race)
	$(GOTEST) -race -short -p $(TEST_PARALLEL) $(TESTFLAGS) $(RACE)

# The rules in transcripts come along: they take seconds.
.PHONY: stores
stores: setup ## Of verify: the stores on DynamoDB emulators, etcd, PostgreSQL and ZooKeeper
	$(call part,stores)
	$(GOTEST) $(TESTFLAGS) $(ITEST)/protocol
	$(WITH_ENGINES) $(GOTEST) -short -p $(RACE_PARALLEL) -skip '^TestAPI$$' $(TESTFLAGS) $(STORES)

.PHONY: service-clients
service-clients: setup ## Of verify: the lock service by its document, and its clients in three languages
	$(call part,service-clients)
	$(GOTEST) $(TESTFLAGS) $(ITEST)/server
	scripts/openapi
	@# Go would not see that they change.
	clients/test

.PHONY: short-chaos
short-chaos: setup ## Of verify: a minute of chaos
	$(call part,short-chaos)
	scripts/engines install dynoxide etcd postgres zookeeper
	$(GO) run $(CHAOS) -engines sqlite,dynoxide,etcd-cluster,postgres-standby -duration 1m -round 15s -report ''

# Everything with the race detector, on all engines; at full length, but for what takes that
# in virtual time alone.
.PHONY: race-all
race-all: setup
	$(call part,race-all)
	packages=$$($(GO) list work | grep -vxF "$$($(GO) list $(APART) $(SEQUENTIAL) $(VIRTUAL) $(LONGEST))"); \
	$(WITH_ENGINES) $(GOTEST) -race -p $(RACE_PARALLEL) -skip '$(WITHOUT_RACE)|$(ON_KUBERNETES)|$(ON_BUCKETS)' $(TESTFLAGS) $(LONGEST) $$packages
	$(GOTEST) -race -short -skip '$(WITHOUT_RACE)' $(TESTFLAGS) $(VIRTUAL)
	@# Conformance is through an SDK and a server in the test's process: see plain.
	$(GOTEST) -race -skip '$(ON_BUCKETS)|^TestAPI$$|^TestConformance' $(TESTFLAGS) $(BUCKETS)

# What the race detector has nothing to find in, or makes too slow; but what `make
# test` runs in the same way.
.PHONY: plain
plain: setup
	$(call part,plain)
	$(GOTEST) $(TESTFLAGS) $(ITEST)/protocol
	@# All 10,000 interleavings: with the race detector SQLite is too slow for them.
	$(GOTEST) -run Interleavings $(TESTFLAGS) $(ITEST)/fence
	$(GOTEST) -skip '$(ON_KUBERNETES)' $(TESTFLAGS) $(HEAVY)
	$(GOTEST) -run '^TestConformance' $(TESTFLAGS) $(BUCKETS)
	$(GOTEST) -skip '$(ON_BUCKETS)' $(TESTFLAGS) $(PLAIN_BUCKETS)
	@# A Prometheus that scrapes each second does not like to be tested beside others.
	$(WITH_ENGINES) $(GOTEST) $(TESTFLAGS) $(ITEST)/monitoring

# A module apart from the workspace.
.PHONY: release
release:
	$(call part,release)
	GOWORK=off $(GO) vet -C release ./...
	GOWORK=off $(GO) test -C release $(TESTFLAGS) ./...

.PHONY: api
api: setup
	$(call part,api)
	$(WITH_ENGINES) $(GOTEST) -p $(TEST_PARALLEL) -parallel 3 -run '$(WITHOUT_RACE)' $(TESTFLAGS) $(STORES) ./cmd/internal/cli

# What measures is not tested beside the others. And the fault table's clients are large: etcd and
# Kubernetes, with the race detector, take minutes to build. The fault table's column of Kubernetes
# is left out here, by the names of its tests, and is part of `make kubernetes`.
.PHONY: measured
measured: setup
	$(call part,measured)
	@echo "left out of the fault table: $(ON_KUBERNETES) and $(ON_BUCKETS), which make kubernetes and make buckets have"
	$(WITH_ENGINES) $(GOTEST) -p 1 -skip '$(ON_KUBERNETES)|$(ON_BUCKETS)' $(TESTFLAGS) $(BENCH) $(CROWD) $(SHARDS) $(FAULTS) $(SERVICE) $(LOAD)

.PHONY: simulator
simulator: setup ## Of verify: 5,000 schedules of the simulator
	$(call part,simulator)
	$(GO) build -o $(BIN)/simulator ./internal/sim/run
	$(BIN)/simulator -seeds $(SEEDS) -all
	$(BIN)/simulator -seeds $(SETS) -together
	@# A bug that only this seed has shown.
	$(BIN)/simulator -first 83917 -seeds 1

.PHONY: million
million:
	$(MAKE) simulator SEEDS=1000000 SETS=80000

.PHONY: virtual
virtual: setup
	$(call part,virtual)
	$(GOTEST) $(TESTFLAGS) $(ITEST)/schedules -args -seeds $(SCHEDULE_SEEDS)
	$(GOTEST) $(TESTFLAGS) $(VIRTUAL)

.PHONY: model
model: setup ## Of verify: the configurations of the model that take seconds (TLC; needs Java)
	$(call part,model)
	scripts/spec quick

# The simulator finds every deliberate mistake in the core, and real processes those of the lock
# service and its clients; and none without one, above.
WRONG_SERVICE := ^TestMistakes$$|Bites$$
.PHONY: wrong-core wrong-processes
wrong-core: setup
	$(call part,wrong-core)
	$(GOTEST) -tags tenure_wrong $(TESTFLAGS) ./internal/sim
	$(GOTEST) -tags tenure_wrong -run '(Is|Are)Found' $(TESTFLAGS) . ./rwlock
wrong-processes: setup
	$(call part,wrong-processes)
	$(REQUIRED) $(GOTEST) -short -tags tenure_wrong -run '$(WRONG_SERVICE)' $(TESTFLAGS) $(SERVICE)

.PHONY: lint
lint: $(GOFUMPT) $(GOLANGCI_LINT) ## Of verify: format, code and go.mod files
	$(call part,lint)
	@# The quick checks first. (No "tee /dev/stderr" here: it would truncate a log file.)
	files=$$($(GOFUMPT) -l .); test -z "$$files" || { echo "not formatted, run 'make fmt': $$files" >&2; exit 1; }
	scripts/tidy --check
	GOWORK=off $(GO) mod tidy -C release -diff
	@# It has staticcheck's checks, all that are on by default and more.
	$(GOLANGCI_LINT) run $(MODULES)
	cd release && GOWORK=off ../$(GOLANGCI_LINT) run ./...

.PHONY: portable
portable:
	$(call part,portable)
	for system in darwin windows; do GOOS=$$system CGO_ENABLED=0 $(GO) vet $(PORTABLE); done

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
	$(GO) test -count=1 -timeout 0 $(ITEST)/schedules -run 'TestSchedules$$' -v -args $(SCHEDULES)

# How long `make chaos` runs.
DURATION ?= 2m

.PHONY: interop
interop: setup
	$(WITH_ENGINES) env TENURE_TEST_CHAOS=$(DURATION) $(GO) test -count=1 -timeout 2h -v $(INTEROP)

.PHONY: spec
spec: setup ## Check the model, its wrong variants, and traces of the code against it (TLC; needs Java)
	scripts/spec check
	TENURE_REQUIRE_ENGINES=1 $(GO) test -count=1 -timeout 1h $(ITEST)/spec -schedules 20

.PHONY: faults
faults: setup
	scripts/engines run dynoxide postgres zookeeper kubernetes versitygw -- $(GO) run $(FAULTS) -write

.PHONY: service
service: setup
	scripts/engines run dynoxide -- $(GO) run $(FAULTS) -service -write
	$(GO) run $(SERVICE) -duration $(DURATION) -write
	$(REQUIRED) $(GO) test -count=1 -timeout 1h -tags tenure_wrong -run '$(WRONG_SERVICE)' $(SERVICE)

# A program that takes part beside etcd, if there is one.
CONSUL ?=

.PHONY: load
load: setup
	scripts/engines install etcd
	$(GO) run $(LOAD) -consul '$(CONSUL)' -json $(LOAD)/results.json -markdown docs/evidence/performance.md

.PHONY: kubernetes
kubernetes: setup
	$(REQUIRED) scripts/engines run kubernetes -- $(GOTEST) -count=1 $(TESTFLAGS) $(KUBERNETES)
	$(REQUIRED) scripts/engines run kubernetes -- $(GOTEST) -count=1 -run '$(ON_KUBERNETES)' $(TESTFLAGS) $(ON_KUBERNETES_IN)
	$(REQUIRED) scripts/engines run kubernetes -- $(GOTEST) -count=1 -p 1 -run '$(ON_KUBERNETES)' $(TESTFLAGS) $(ON_KUBERNETES_ALONE)

.PHONY: buckets
buckets: setup
	scripts/engines install versitygw fakegcs azurite
	$(REQUIRED) $(GOTEST) -count=1 -run '$(ON_BUCKETS)|^TestAPI$$' $(TESTFLAGS) $(BUCKETS)
	$(REQUIRED) $(GOTEST) -count=1 -run '$(ON_BUCKETS)' $(TESTFLAGS) $(PLAIN_BUCKETS)
	$(REQUIRED) $(GOTEST) -count=1 -run '$(ON_BUCKETS)' $(TESTFLAGS) $(ON_BUCKETS_IN)
	$(REQUIRED) scripts/engines run versitygw -- $(GOTEST) -count=1 -p 1 -run '$(ON_BUCKETS)' $(TESTFLAGS) $(ON_BUCKETS_ALONE)

.PHONY: release-check
release-check:
	scripts/setup release
	GOWORK=off TENURE_RELEASE_CHECK=1 $(GO) test -C release -count=1 -timeout 1h -v $(TESTFLAGS) ./installed
	TENURE_RELEASE_CHECK=1 $(GOTEST) -count=1 -run '^TestRunsInAnEmptyRoot$$' $(TESTFLAGS) ./cmd/internal/daemon

.PHONY: chaos
chaos: setup ## Kill, stop and cut off real processes that contend for a lock (Linux)
	scripts/engines install dynoxide etcd postgres zookeeper kubernetes versitygw
	$(GO) run $(CHAOS) -duration $(DURATION) -report chaos.html

# How often `make kills` kills it on each store. The leader of an etcd of three is killed, and
# paused, less often, which takes seconds each.
KILL_ROUNDS ?= 500
ETCD_ROUNDS ?= 20

.PHONY: kills
kills: setup
	$(WITH_ENGINES) env TENURE_KILL_ROUNDS=$(KILL_ROUNDS) $(GOTEST) -count=1 -timeout 3h -parallel 8 -run '^TestKilledAtAnyTime$$' -v ./cmd/internal/cli
	$(REQUIRED) TENURE_ETCD_ROUNDS=$(ETCD_ROUNDS) $(GOTEST) -count=1 -timeout 1h -run '^TestEtcd' -v ./cmd/internal/daemon

.PHONY: month
month:
	TENURE_TEST_DAYS=30 $(GOTEST) -count=1 -run '^TestMonth' -v $(TESTFLAGS) ./once

.PHONY: readers
readers: setup
	$(WITH_ENGINES) env TENURE_RWLOCK_FOR=$(DURATION) TENURE_RWLOCK_READERS=16 TENURE_RWLOCK_WRITERS=4 $(GOTEST) -count=1 -timeout 2h -parallel 3 -v $(ITEST)/rwlock

# How many random schedules of readers and writers `make reader-schedules` runs.
READER_SCHEDULES ?= 100000

.PHONY: reader-schedules
reader-schedules:
	TENURE_RWLOCK_SEEDS=$(READER_SCHEDULES) $(GO) test -count=1 -timeout 12h -run '^TestSchedules$$' ./rwlock

.PHONY: bench
bench: setup ## Measure beside other lock clients, on one engine in one run
	scripts/engines run dynoxide -- $(GO) run $(BENCH) -json $(BENCH)/results.json -markdown docs/evidence/performance.md

.PHONY: native
native: setup
	scripts/engines run etcd zookeeper postgres kubernetes -- $(GO) run $(EVIDENCE)/native -json $(EVIDENCE)/native/results.json -markdown docs/evidence/performance.md

.PHONY: sessions
sessions: setup
	scripts/engines run dynoxide -- $(GO) run $(CROWD) -locks 100000 -for 5m

.PHONY: shards
shards: setup
	scripts/engines run dynoxide -- $(GO) run $(SHARDS) -json $(SHARDS)/results.json -markdown docs/evidence/performance.md

.PHONY: gobench
gobench:
	$(WITH_ENGINES) $(GO) test -run '^$$' -bench . -benchmem -p 1 work

.PHONY: engines-test
engines-test:
	scripts/engines-test

.PHONY: engines
engines: ## Install the engines of the tests; scripts/engines starts and stops them
	scripts/engines install $(ENGINES)

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
