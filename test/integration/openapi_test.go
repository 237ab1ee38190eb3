package integration

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientrest "k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Req: A-07 (A4)
func TestOpenAPIParsesAndHarmsNobody(t *testing.T) {
	t.Parallel()
	for road, config := range map[string]*clientrest.Config{
		"through the aggregator": env.Cluster.AdminConfig(), "directly": direct(t, env.Cluster.AdminConfig()),
	} {
		t.Run(road, func(t *testing.T) {
			t.Parallel()
			read := reader(t, config)

			two := read("/openapi/v2")
			var swagger spec.Swagger
			if err := swagger.UnmarshalJSON(two); err != nil {
				t.Fatalf("v2: %v", err)
			}
			harmless(t, "v2", two)
			described := map[string]bool{}
			for name, definition := range swagger.Definitions {
				if strings.Contains(name, "/") {
					t.Errorf("v2: definition %s has a slash", name)
				}
				for _, gvk := range kindsOf(definition) {
					described[gvk] = true
				}
			}
			for _, k := range kinds() {
				if !described[k.gv.Group+" "+k.kind] {
					t.Errorf("v2 has no definition of %s", k.kind)
				}
				if swagger.Paths.Paths[k.url("{namespace}")].Get == nil {
					t.Errorf("v2 has no path of %s", k.resource)
				}
			}

			var index struct {
				Paths map[string]struct{ ServerRelativeURL string }
			}
			if err := json.Unmarshal(read("/openapi/v3"), &index); err != nil {
				t.Fatal(err)
			}
			described = map[string]bool{}
			for _, group := range []string{"physical.fieldplane.dev", "talos.fieldplane.dev"} {
				path := "apis/" + group + "/v1alpha1"
				if index.Paths[path].ServerRelativeURL == "" {
					t.Errorf("v3 does not have %s", path)
					continue
				}
				three := read(index.Paths[path].ServerRelativeURL)
				var document spec3.OpenAPI
				if err := json.Unmarshal(three, &document); err != nil {
					t.Fatalf("v3 of %s: %v", group, err)
				}
				harmless(t, "v3 of "+group, three)
				for name, schema := range document.Components.Schemas {
					if strings.Contains(name, "/") {
						t.Errorf("v3: schema %s has a slash", name)
					}
					for _, gvk := range kindsOf(*schema) {
						described[gvk] = true
					}
				}
			}
			for _, k := range kinds() {
				if !described[k.gv.Group+" "+k.kind] {
					t.Errorf("v3 has no schema of %s", k.kind)
				}
			}
		})
	}
}

// reader returns a function that gets paths as they are.
func reader(t testing.TB, config *clientrest.Config) func(path string) []byte {
	t.Helper()
	config = clientrest.CopyConfig(config)
	config.NegotiatedSerializer = noCodec{}
	client, err := clientrest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(path string) []byte {
		t.Helper()
		body, err := client.Get().RequestURI(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return body
	}
}

// kindsOf are the groups and kinds that a schema says it is.
func kindsOf(schema spec.Schema) []string {
	var have []string
	list, _ := schema.Extensions["x-kubernetes-group-version-kind"].([]any)
	for _, entry := range list {
		gvk, _ := entry.(map[string]any)
		group, _ := gvk["group"].(string)
		kind, _ := gvk["kind"].(string)
		have = append(have, group+" "+kind)
	}
	return have
}

// harmless looks for what makes clients of the whole host fail.
func harmless(t testing.TB, name string, document []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, member := range value {
				if _, is := member.(bool); is && key == "additionalProperties" {
					t.Errorf("%s: %s has a boolean additionalProperties", name, path)
				}
				walk(path+"."+key, member)
			}
		case []any:
			for _, member := range value {
				walk(path, member)
			}
		}
	}
	walk("", value)
}

// Req: A-07 (A4)
func TestNoTypeOfOursViolatesTheAPIRules(t *testing.T) {
	t.Parallel()
	file, err := os.Open(filepath.Join("..", "..", "generated", "openapi", "violations.list"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for scanner := bufio.NewScanner(file); scanner.Scan(); lines++ {
		if strings.Contains(scanner.Text(), "fieldplane") {
			t.Error(scanner.Text())
		}
	}
	// Kubernetes' own types have some; none at all would mean that nobody looked.
	if lines == 0 {
		t.Error("the list is empty")
	}
}
