#!/usr/bin/env bash
# Runs Go tests and ends with what they covered.
#
#   hack/run-tests.sh unit|integration
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
unit)
	hack/prerequisites.sh
	# The race detector, where it does not mean to compile an API server twice. It makes a test many times slower: those
	# that try everything try less under it, and all of it without.
	raced=$(go list ./pkg/driver/... ./pkg/probe/... ./pkg/controllers/... ./pkg/talos/... ./pkg/unitruntime/... ./cmd/io-probe/... ./cmd/unit-runtime/...)
	exhaustive=$(grep -rl --include='*_test.go' 'testing\.Short()' pkg cmd | xargs -r -n1 dirname | sort -u | sed 's|^|./|')
	go test -race -short -cover -timeout 15m $raced
	go test -cover -timeout 15m $exhaustive $(go list ./... | grep -vxF "$raced" | grep -v /generated/)
	;;
integration)
	# One package at a time: each starts a cluster of its own, on two cores.
	(cd test && go test -p 1 -count=1 -timeout 30m ./...)
	;;
*)
	echo "usage: hack/run-tests.sh unit|integration" >&2
	exit 2
	;;
esac
