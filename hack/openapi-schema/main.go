// Command openapi-schema prints the OpenAPI v2 schema of the served types; the
// generator of apply configurations reads merge keys and list types from it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/fieldplane/fieldplane/generated/openapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi-schema:", err)
		os.Exit(1)
	}
}

func run() error {
	definitions := map[string]spec.Schema{}
	reference := func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	}
	for name, definition := range openapi.GetOpenAPIDefinitions(reference) {
		schema := definition.Schema
		if v2, ok := schema.Extensions[common.ExtensionV2Schema]; ok {
			if alternative, ok := v2.(spec.Schema); ok {
				schema = alternative
			}
		}
		definitions[name] = schema
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	return encoder.Encode(&spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "fieldplane", Version: "v1alpha1"}},
		Paths:       &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions: definitions,
	}})
}
