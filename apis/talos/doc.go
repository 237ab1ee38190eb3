// +k8s:deepcopy-gen=package
// +groupName=talos.fieldplane.dev

// Package talos is the internal version of the talos group, the hub that every
// served version converts to and from. See v1alpha1 for what the fields mean.
package talos
