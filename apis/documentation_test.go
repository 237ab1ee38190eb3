package apis_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/fieldplane/fieldplane/generated/openapi"
)

// declaration is one type, or function, of a package.
type declaration struct {
	doc    string
	fields []*ast.Field
	isEnum bool
	// values are the constants of an enum's type.
	values []string
}

// sources reads the declarations of a package that people wrote, by name; functions are named "func NAME".
func sources(t *testing.T, folder string) map[string]*declaration {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*declaration{}
	get := func(name string) *declaration {
		if found[name] == nil {
			found[name] = &declaration{}
		}
		return found[name]
	}
	for _, file := range files {
		base := filepath.Base(file)
		if strings.HasPrefix(base, "zz_generated") || strings.HasPrefix(base, "generated") || strings.HasSuffix(base, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				get("func " + decl.Name.Name).doc = decl.Doc.Text()
			case *ast.GenDecl:
				for _, s := range decl.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						d := get(s.Name.Name)
						d.doc = decl.Doc.Text()
						d.isEnum = strings.Contains(comments(decl.Doc), "+enum")
						if structure, ok := s.Type.(*ast.StructType); ok {
							d.fields = structure.Fields.List
						}
					case *ast.ValueSpec:
						if of, ok := s.Type.(*ast.Ident); ok && decl.Tok == token.CONST && len(s.Values) == 1 {
							if literal, ok := s.Values[0].(*ast.BasicLit); ok {
								get(of.Name).values = append(get(of.Name).values, strings.Trim(literal.Value, `"`))
							}
						}
					}
				}
			}
		}
	}
	return found
}

func comments(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	var lines []string
	for _, comment := range group.List {
		lines = append(lines, comment.Text)
	}
	return strings.Join(lines, "\n")
}

// sentence is a doc comment without its markers.
func sentence(doc string) string {
	var kept []string
	for line := range strings.Lines(doc) {
		if !strings.HasPrefix(strings.TrimSpace(line), "+") {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return strings.TrimSpace(strings.Join(kept, " "))
}

// Req: A-07. kubectl explain shows these comments, and nothing else says what a field means.
func TestEveryFieldSaysWhatItMeans(t *testing.T) {
	for _, folder := range []string{"physical", "physical/v1alpha1", "talos", "talos/v1alpha1"} {
		for name, d := range sources(t, folder) {
			if !ast.IsExported(strings.TrimPrefix(name, "func ")) {
				continue
			}
			if sentence(d.doc) == "" && !strings.HasPrefix(name, "func ") {
				t.Errorf("%s: %s has no comment", folder, name)
			}
			for _, member := range d.fields {
				if len(member.Names) == 0 {
					continue // TypeMeta
				}
				if len(member.Names) > 1 {
					t.Errorf("%s: fields of %s share a line, and so a comment", folder, name)
				}
				said := sentence(member.Doc.Text())
				if said == "" || !strings.HasSuffix(said, ".") && !strings.HasSuffix(said, ")") {
					t.Errorf("%s: %s.%s has no comment that is a sentence: %q", folder, name, member.Names[0].Name, said)
				}
			}
		}
	}
}

// Req: A-07. OpenAPI names the values that validation accepts, in the same words as the constants.
func TestOpenAPINamesTheValuesOfEveryEnum(t *testing.T) {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
	for _, group := range []string{"physical", "talos"} {
		types := sources(t, group+"/v1alpha1")
		checked := 0
		for name, d := range types {
			for _, member := range d.fields {
				of := ""
				switch kind := member.Type.(type) {
				case *ast.Ident:
					of = kind.Name
				case *ast.ArrayType:
					if element, ok := kind.Elt.(*ast.Ident); ok {
						of = element.Name
					}
				}
				if of == "" || types[of] == nil || !types[of].isEnum {
					continue
				}
				checked++
				property := propertyOf(definitions, group, name, member)
				if property == nil {
					t.Errorf("%s.%s is not in the OpenAPI", name, member.Names[0].Name)
					continue
				}
				enum := property.Enum
				if property.Items != nil {
					enum = property.Items.Schema.Enum
				}
				var offered []string
				for _, value := range enum {
					offered = append(offered, fmt.Sprint(value))
				}
				want := slices.Clone(types[of].values)
				slices.Sort(want)
				slices.Sort(offered)
				if !slices.Equal(offered, want) {
					t.Errorf("%s.%s: OpenAPI offers %v, the constants are %v", name, member.Names[0].Name, offered, want)
				}
			}
		}
		if checked < 4 {
			t.Errorf("only %d enums found in %s", checked, group)
		}
		// A type with constants that is no enum would be checked by nothing.
		for name, d := range types {
			if len(d.values) > 0 && !d.isEnum {
				t.Errorf("%s/%s has constants and is not marked as an enum", group, name)
			}
		}
	}
}

func propertyOf(definitions map[string]common.OpenAPIDefinition, group, name string, member *ast.Field) *spec.Schema {
	var definition common.OpenAPIDefinition
	for model := range definitions {
		if strings.HasSuffix(model, "."+group+".v1alpha1."+name) {
			definition = definitions[model]
		}
	}
	_, tag, _ := strings.Cut(member.Tag.Value, `json:"`)
	tag, _, _ = strings.Cut(tag, `"`)
	tag, _, _ = strings.Cut(tag, ",")
	property, ok := definition.Schema.Properties[tag]
	if !ok {
		return nil
	}
	return &property
}
