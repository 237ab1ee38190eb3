#!/usr/bin/env bash
# Fails if generating again changes anything; what was generated is left in place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

state() { find apis generated -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; }

before=$(mktemp)
after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT
state >"$before"
hack/update-codegen.sh >/dev/null
state >"$after"
if ! diff "$before" "$after" >/dev/null; then
	echo "verify-codegen: generated code was stale; commit what make codegen makes of it:" >&2
	diff "$before" "$after" | awk '/^[<>]/ { print "  " $3 }' | sort -u >&2
	exit 1
fi
