// +k8s:deepcopy-gen=package
// +groupName=physical.fieldplane.dev

// Package physical is the internal version of the physical group, the hub that every
// served version converts to and from. See v1alpha1 for what the fields mean.
package physical
