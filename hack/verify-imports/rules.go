package main

// rule says what the packages under one path of this module may import of it. A
// package belongs to the rule with the longest path.
type rule struct {
	path string
	// imports are the paths under which this module's packages may be imported,
	// besides the rule's own.
	imports []string
	// kubernetes is false for what must be usable, and testable, without any of
	// it.
	kubernetes bool
}

// rules is the direction of imports that docs/design.md draws: each line may
// look at lines above it.
func rules() []rule {
	var (
		foundation = []string{"pkg/driver", "pkg/isa88", "pkg/talos/ranges"}
		types      = append([]string{"apis"}, foundation...)
		clients    = append([]string{"generated"}, types...)
		field      = append([]string{"pkg/probe", "pkg/unitruntime", "pkg/talos", "pkg/pki/authority", "pkg/version"}, clients...)
		server     = append([]string{"pkg/pki"}, field...)
		assembly   = append([]string{"pkg/controllers", "pkg/registry", "pkg/admission", "pkg/etcd"}, server...)
	)
	return []rule{
		{path: "pkg/driver"},
		{path: "pkg/isa88"},
		{path: "pkg/talos/ranges"},
		{path: "pkg/version"},

		{path: "apis", imports: foundation, kubernetes: true},
		{path: "generated", imports: []string{"apis"}, kubernetes: true},

		{path: "pkg/etcd", kubernetes: true},
		{path: "pkg/pki", imports: []string{"pkg/pki/authority"}, kubernetes: true},
		{path: "pkg/pki/authority", kubernetes: true},
		{path: "pkg/probe", imports: except(field, "pkg/talos", "pkg/unitruntime"), kubernetes: true},
		{path: "pkg/unitruntime", imports: except(field, "pkg/talos"), kubernetes: true},
		{path: "pkg/talos", imports: except(field, "pkg/probe", "pkg/unitruntime"), kubernetes: true},
		// Nodes are spoken to without Kubernetes.
		{path: "pkg/talos/maintenance", imports: []string{"pkg/talos/identity", "pkg/talos/internal"}},
		{path: "pkg/talos/machine", imports: []string{"pkg/talos/identity", "pkg/talos/internal", "pkg/talos/maintenance"}},

		// Side by side, and never one from another: what the registry needs
		// live it asks through interfaces of its own.
		{path: "pkg/controllers", imports: server, kubernetes: true},
		{path: "pkg/registry", imports: server, kubernetes: true},
		{path: "pkg/admission", imports: server, kubernetes: true},

		{path: "pkg/apiserver", imports: assembly, kubernetes: true},

		{path: "cmd/fieldplane-apiserver", imports: append([]string{"pkg/apiserver"}, assembly...), kubernetes: true},
		// Programs on the plant's floor and on a user's machine carry nothing
		// of the server.
		{path: "cmd/io-probe", imports: field, kubernetes: true},
		{path: "cmd/unit-runtime", imports: field, kubernetes: true},
		{path: "cmd/kubectl-fieldplane", imports: field, kubernetes: true},
		{path: "hack", imports: clients, kubernetes: true},
	}
}

func except(list []string, unwanted ...string) []string {
	var kept []string
	for _, item := range list {
		wanted := true
		for _, u := range unwanted {
			wanted = wanted && item != u
		}
		if wanted {
			kept = append(kept, item)
		}
	}
	return kept
}
