// Command requirements keeps docs/requirements.md true: which tests prove which
// requirement. A test names what it proves in a comment, as "// Req: T-07".
//
//	requirements          print what is proved and what is not
//	requirements -write   bring the table in docs/requirements.md up to date
//	requirements -check   fail if the table is not up to date, or a test names
//	                      a requirement that does not exist
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

const document = "docs/requirements.md"

func main() {
	write := flag.Bool("write", false, "bring the table up to date")
	check := flag.Bool("check", false, "fail if the table is not up to date")
	flag.Parse()
	if err := run(*write, *check); err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(1)
	}
}

func run(write, check bool) error {
	proofs, err := findProofs(".")
	if err != nil {
		return err
	}
	stored, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	table, known := rewrite(string(stored), proofs)
	for id, tests := range proofs {
		if !slices.Contains(known, id) {
			return fmt.Errorf("%s names requirement %s, which %s does not have", tests[0], id, document)
		}
	}
	switch {
	case write:
		return os.WriteFile(document, []byte(table), 0o644)
	case check:
		if table != string(stored) {
			return fmt.Errorf("%s is not up to date: run go run ./hack/requirements -write", document)
		}
		return nil
	}
	var open []string
	tests := map[string]bool{}
	for _, id := range known {
		if len(proofs[id]) == 0 {
			open = append(open, id)
		}
		for _, test := range proofs[id] {
			tests[test] = true
		}
	}
	fmt.Printf("requirements: %d of %d are named by %d tests; not yet: %s\n",
		len(known)-len(open), len(known), len(tests), strings.Join(open, " "))
	return nil
}
