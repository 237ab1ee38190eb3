// +k8s:openapi-gen=true
// +k8s:deepcopy-gen=package
// +k8s:protobuf-gen=package
// +k8s:conversion-gen=github.com/fieldplane/fieldplane/apis/talos
// +k8s:defaulter-gen=TypeMeta
// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:openapi-model-package=com.github.fieldplane.fieldplane.apis.talos.v1alpha1
// +groupName=talos.fieldplane.dev

// Package v1alpha1 is the served version of the talos group: clusters of Talos
// Linux machines (TalosCluster) and the machines themselves (TalosMachine).
package v1alpha1
