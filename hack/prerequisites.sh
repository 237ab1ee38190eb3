#!/usr/bin/env bash
# Installs the few programs that are not Go modules, where that is possible:
# protoc for generated code, strace for the test that the store syncs a write
# before it acknowledges it, ip for tests with networks of their own, node and
# npm for devices that are not ours (test/interop).
set -euo pipefail

missing=()
command -v protoc >/dev/null || missing+=(protobuf-compiler)
command -v strace >/dev/null || missing+=(strace)
command -v ip >/dev/null || missing+=(iproute2)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "prerequisites: please install: ${missing[*]}" >&2
	exit 1
fi
echo "prerequisites: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
