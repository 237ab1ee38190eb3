#!/bin/sh
# Builds the local cluster's control plane into BIN_DIR (default ../../_local/bin)
# and links it under each name it answers to. Up-to-date binaries are left alone
# by go build itself, so running this again costs a few seconds.
#
#   test/localcluster/build.sh [BIN_DIR]
#
# The version is stamped into this binary only: without it `kubectl version` and
# the scheduler fail on "$Format:%H$", and stamping any other program of ours
# turns Kubernetes feature gates off. -X changes the link step alone, no package
# is compiled again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
bin=${1:-$here/../../_local/bin}
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)

v=k8s.io/component-base/version
cd "$here/.."
go build \
	-ldflags "-X $v.gitVersion=v1.37.2 -X $v.gitMajor=1 -X $v.gitMinor=37 -X $v.gitCommit=unknown -X $v.gitTreeState=clean -X $v.buildDate=2026-01-01T00:00:00Z" \
	-o "$bin/controlplane" ./localcluster/controlplane

for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
	ln -sfn controlplane "$bin/$name"
done
