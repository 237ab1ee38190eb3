#!/usr/bin/env bash
# go mod tidy for all modules. In test, k8s.io/kubernetes names its staging
# modules as v0.0.0, so each needs a requirement of its own; tidy drops those
# that nothing imports, and `go list -m all` would fail without them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go mod tidy
cd test
go mod tidy
version=$(go list -m -f '{{.Version}}' k8s.io/api)
go mod edit -json "$(go list -m -f '{{.GoMod}}' k8s.io/kubernetes)" |
	sed -n 's/.*"Path": "\(k8s\.io\/[a-z-]*\)",*/\1/p' | sort -u |
	while read -r module; do
		if go mod edit -json "$(go list -m -f '{{.GoMod}}' k8s.io/kubernetes)" | grep -A1 "\"Path\": \"$module\"" | grep -q '"v0.0.0"'; then
			go mod edit -require="$module@$version"
		fi
	done
go mod download
cd ../hack/tools
go mod tidy
