package render

// ValidateVersions tells whether a cluster of these Talos and Kubernetes versions can be rendered. It is what admission
// asks, so that nobody hears of it only when a machine was approved.
func ValidateVersions(talosVersion, kubernetesVersion string) error {
	if _, err := parseContract(talosVersion); err != nil {
		return err
	}

	return checkPairing(talosVersion, kubernetesVersion)
}
