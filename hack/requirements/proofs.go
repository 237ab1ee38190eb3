package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	reqLine = regexp.MustCompile(`Req:\s*(.*)`)
	reqID   = regexp.MustCompile(`\b[APT]-\d\d[a-z]?\b`)
)

// findProofs returns, by requirement, the tests below root that name it in
// their doc comment or their body, as "package/file.go: TestName".
func findProofs(root string) (map[string][]string, error) {
	proofs := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".") || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			test, ok := declaration.(*ast.FuncDecl)
			if !ok || !isTest(test.Name.Name) {
				continue
			}
			for _, id := range named(file, test) {
				proof := filepath.ToSlash(filepath.Dir(path)) + ": " + test.Name.Name
				if !slices.Contains(proofs[id], proof) {
					proofs[id] = append(proofs[id], proof)
				}
			}
		}
		return nil
	})
	for _, tests := range proofs {
		slices.Sort(tests)
	}
	return proofs, err
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Benchmark"} {
		if strings.HasPrefix(name, prefix) && name != "TestMain" {
			return true
		}
	}
	return false
}

// named returns the requirements in the comments of a function.
func named(file *ast.File, test *ast.FuncDecl) []string {
	var ids []string
	for _, group := range file.Comments {
		if group != test.Doc && (group.Pos() < test.Pos() || group.End() > test.End()) {
			continue
		}
		for _, comment := range group.List {
			if match := reqLine.FindStringSubmatch(comment.Text); match != nil {
				ids = append(ids, reqID.FindAllString(match[1], -1)...)
			}
		}
	}
	return ids
}
