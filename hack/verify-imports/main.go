// Verify-imports fails on an import against the direction that docs/design.md
// draws. It reads the sources' import lines and compiles nothing.
package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/fieldplane/fieldplane"

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	violations, packages, err := check(os.DirFS(root), rules())
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-imports:", err)
		os.Exit(2)
	}
	for _, violation := range violations {
		fmt.Fprintln(os.Stderr, "verify-imports:", violation)
	}
	if packages == 0 {
		fmt.Fprintln(os.Stderr, "verify-imports: no package found: run it in the root of the repository")
		os.Exit(2)
	}
	if len(violations) > 0 {
		os.Exit(1)
	}
}

// check reads every package of the root module and returns each import that no
// rule allows. Tests may import what they like: nobody links them.
func check(root fs.FS, rules []rule) (violations []string, packages int, err error) {
	seen := map[string]bool{}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skip(root, name, entry)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || path.Dir(name) == "." {
			return nil
		}
		seen[path.Dir(name)] = true
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if why := refuse(rules, path.Dir(name), imported); why != "" {
				violations = append(violations, name+" "+why)
			}
		}
		return nil
	})
	slices.Sort(violations)
	return violations, len(seen), err
}

// skip leaves out other modules and what is no source.
func skip(root fs.FS, name string, entry fs.DirEntry) error {
	if name == "." {
		return nil
	}
	if base := entry.Name(); base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// refuse says why the package in dir may not import this, or "".
func refuse(rules []rule, dir, imported string) string {
	own, ok := ruleOf(rules, dir)
	if !ok {
		return "is in a folder that no rule knows: add one to hack/verify-imports/rules.go"
	}
	local, isLocal := strings.CutPrefix(imported, module+"/")
	if !isLocal {
		if !own.kubernetes && isKubernetes(imported) {
			return "imports " + imported + ": " + own.path + " must do without Kubernetes"
		}
		return ""
	}
	target, ok := ruleOf(rules, local)
	if !ok {
		return "imports " + local + ", which no rule knows: add one to hack/verify-imports/rules.go"
	}
	if target.path == own.path || slices.ContainsFunc(own.imports, func(allowed string) bool { return under(local, allowed) }) {
		return ""
	}
	return "imports " + local + ": " + own.path + " may import " + strings.Join(append([]string{own.path}, own.imports...), ", ")
}

func ruleOf(rules []rule, dir string) (rule, bool) {
	var best rule
	found := false
	for _, r := range rules {
		if under(dir, r.path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

func isKubernetes(imported string) bool {
	return strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "sigs.k8s.io/")
}
