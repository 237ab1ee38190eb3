// Package version holds the version of this program. The version of
// k8s.io/component-base stays Kubernetes' own: stamping it would turn feature
// gates off, silently.
package version

// Version is the release, without the v.
const Version = "0.1.0"

// Minor is the release's major and minor number.
const Minor = "0.1"
