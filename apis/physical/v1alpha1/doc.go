// +k8s:openapi-gen=true
// +k8s:deepcopy-gen=package
// +k8s:protobuf-gen=package
// +k8s:conversion-gen=github.com/fieldplane/fieldplane/apis/physical
// +k8s:defaulter-gen=TypeMeta
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:openapi-model-package=com.github.fieldplane.fieldplane.apis.physical.v1alpha1
// +groupName=physical.fieldplane.dev

// Package v1alpha1 is the served version of the physical group: field devices
// (IOModule), the compute nodes they may be bound to (Controller), and the
// ISA-88 equipment built on them (ControlModule, Unit).
package v1alpha1
