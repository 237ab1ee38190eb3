# fieldplane. `make run` shows it, `make test` proves it; each does all the set-up it needs.

LOCAL := $(CURDIR)/_local
BIN := $(LOCAL)/bin
TOOLS := $(LOCAL)/tools
PROGRAMS := ./cmd/fieldplane-apiserver ./cmd/io-probe ./cmd/unit-runtime ./cmd/kubectl-fieldplane

.PHONY: build build-test run up down test test-unit test-integration bench verify codegen clean

build: ## Build the programs into _local/bin.
	@mkdir -p $(BIN)
	@echo "Building into $(BIN), which takes some minutes the first time."
	@go build -o $(BIN)/ $(PROGRAMS)

build-test: build ## Build the local control plane and the simulated plant too.
	@sh test/localcluster/build.sh $(BIN)
	@cd test && go build -o $(BIN)/ ./cmd/fieldplane-local ./plant/cmd/plant

run: build-test ## Run everything in the foreground.
	@$(BIN)/fieldplane-local run

up: build-test ## Run everything in the background; returns when it is ready.
	@$(BIN)/fieldplane-local up

down: ## Stop what `make up` has started.
	@if [ -x $(BIN)/fieldplane-local ]; then $(BIN)/fieldplane-local down; fi

test: verify test-unit test-integration ## Everything that CI runs.
	@go run ./hack/requirements

test-unit: ## Tests that need no cluster.
	@hack/run-tests.sh unit

test-integration: build-test ## Tests against the real server in a real cluster.
	@hack/run-tests.sh integration

bench: build-test ## Measure what has a budget, beside its rival, in one run; FIELDPLANE_BENCH_OBJECTS=10000 for long lists.
	@set -e; for package in $$(grep -rl --include='*_test.go' '^func Benchmark' pkg | xargs -r -n1 dirname | sort -u); do \
		go test -run '^$$' -bench . -benchtime=1s ./$$package; \
	done
	@cd test && go test -run '^$$' -bench . -benchtime=1x -count=1 -timeout 20m ./bench ./interop/opcua

verify: ## Format, vet, staticcheck, import directions, module versions, generated code.
	@hack/verify.sh

codegen: ## Generate everything that is derived from the types.
	hack/update-codegen.sh

clean: down ## Forget everything local.
	rm -rf $(LOCAL)
