#!/usr/bin/env bash
# Checks that need no test to run: format, vet, staticcheck, the direction of
# imports, the versions of modules, generated code and the table of requirements.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/prerequisites.sh
step() { printf 'verify: %s\n' "$1"; }

step format
unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r ls -d 2>/dev/null | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'verify: run gofmt -w on:\n%s\n' "$unformatted" >&2
	exit 1
fi

step "module versions"
hack/verify-modules.sh

step "import directions"
go run ./hack/verify-imports

step "table of requirements"
go run ./hack/requirements -check

step vet
go vet ./...
(cd test && go vet $(go list ./... | grep -v /controlplane$))

step staticcheck
mkdir -p _local/tools
(cd hack/tools && go build -o ../../_local/tools/ tool)
_local/tools/staticcheck ./...
# The control plane's main is twenty lines over all of Kubernetes, which
# staticcheck would read whole.
(cd test && ../_local/tools/staticcheck $(go list ./... | grep -v /controlplane$))

step "generated code"
hack/verify-codegen.sh
