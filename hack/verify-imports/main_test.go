package main

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheRepositoryKeepsTheDirection(t *testing.T) {
	violations, packages, err := check(os.DirFS("../.."), rules())
	if err != nil {
		t.Fatal(err)
	}
	if packages < 10 {
		t.Fatalf("only %d packages were looked at", packages)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

func TestImportsAgainstTheDirectionAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, file, imports, want string
	}{
		{name: "a driver is free of Kubernetes", file: "pkg/driver/modbus/a.go", imports: "k8s.io/klog/v2", want: "pkg/driver must do without Kubernetes"},
		{name: "so are the state table and the ranges", file: "pkg/talos/ranges/a.go", imports: "sigs.k8s.io/yaml", want: "pkg/talos/ranges must do without Kubernetes"},
		{name: "and of the types", file: "pkg/isa88/a.go", imports: module + "/apis/physical", want: "pkg/isa88 may import pkg/isa88"},
		{name: "types know no client", file: "apis/talos/a.go", imports: module + "/generated/listers", want: "imports generated/listers: apis may import"},
		{name: "types may use the ranges", file: "apis/talos/validation/a.go", imports: module + "/pkg/talos/ranges"},
		{name: "but not what else is called talos", file: "apis/talos/validation/a.go", imports: module + "/pkg/talos/render", want: "apis may import"},
		{name: "the registry asks no controller", file: "pkg/registry/a/a.go", imports: module + "/pkg/controllers/b", want: "imports pkg/controllers/b: pkg/registry may import"},
		{name: "nor admission the registry", file: "pkg/admission/a/a.go", imports: module + "/pkg/registry/b", want: "imports pkg/registry/b"},
		{name: "nothing but a program imports the server", file: "pkg/controllers/a/a.go", imports: module + "/pkg/apiserver", want: "imports pkg/apiserver"},
		{name: "a controller uses clients, probe and certificates", file: "pkg/controllers/a/a.go", imports: module + "/generated/clientset " + module + "/pkg/probe/probeclient " + module + "/pkg/pki"},
		{name: "io-probe carries nothing of the server", file: "cmd/io-probe/app/a.go", imports: module + "/pkg/pki", want: "imports pkg/pki: cmd/io-probe may import"},
		{name: "but knows the names in certificates", file: "cmd/io-probe/app/a.go", imports: module + "/pkg/pki/authority"},
		{name: "a folder without a place in the order needs one", file: "pkg/newthing/a.go", imports: "fmt", want: "a folder that no rule knows"},
		{name: "importing such a folder too", file: "pkg/apiserver/a.go", imports: module + "/pkg/newthing", want: "which no rule knows"},
		{name: "tests are free", file: "pkg/driver/a_test.go", imports: "k8s.io/klog/v2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "package a\n"
			for _, imported := range strings.Fields(tc.imports) {
				text += "import _ \"" + imported + "\"\n"
			}
			violations, _, err := check(fstest.MapFS{tc.file: {Data: []byte(text)}}, rules())
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(violations, "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("other modules have an order of their own", func(t *testing.T) {
		violations, packages, err := check(fstest.MapFS{"test/go.mod": {}, "test/a/a.go": {Data: []byte("package a\nimport _ \"x\"\n")}}, rules())
		if err != nil || len(violations) > 0 || packages > 0 {
			t.Errorf("%v %d %v", violations, packages, err)
		}
	})
}
