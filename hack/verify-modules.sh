#!/usr/bin/env bash
# Fails if two of the repository's modules name different versions of one module. Root and test link the same packages: with
# one version apart, everything compiles twice, and what is tested is not what is shipped. The code generators
# (hack/tools) are only held to the versions of Kubernetes that they generate for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# "module version" of every requirement, direct or not.
requirements() {
	awk '
		$1 == "require" && $2 == "(" { block = 1; next }
		block && $1 == ")"           { block = 0; next }
		block && $1 !~ /^\/\//       { print $1, $2 }
		$1 == "require" && $2 != "(" { print $2, $3 }
	' "$1" | LC_ALL=C sort
}

# Prints what the two files disagree on, of the modules whose path matches.
compare() {
	local left=$1 right=$2 only=$3 shared
	shared=$(LC_ALL=C join <(requirements "$left") <(requirements "$right") | grep -E "^$only" || true)
	if [ -z "$shared" ]; then
		echo "verify-modules: $left and $right share no module matching $only: nothing was compared" >&2
		return 1
	fi
	awk -v left="$left" -v right="$right" '$2 != $3 { printf "verify-modules: %s is %s in %s and %s in %s\n", $1, $2, left, $3, right; bad = 1 } END { exit bad }' <<<"$shared" >&2
}

root=${VERIFY_MODULES_ROOT:-go.mod}
bad=0
compare "$root" test/go.mod '' || bad=1
compare "$root" hack/tools/go.mod 'k8s\.io/' || bad=1
exit $bad
