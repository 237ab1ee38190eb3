package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestATestIsListedWithWhatItsCommentsName(t *testing.T) {
	dir := t.TempDir()
	source := `package x

// Req: T-07, P-16a
func TestOne(t *testing.T) {
	// Req: A-01
}

// Req: T-07
func helper() {}

func TestMain(m *testing.M) {
	// Req: A-02
}
`
	if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	proofs, err := findProofs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"T-07", "P-16a", "A-01"} {
		if len(proofs[id]) != 1 || !strings.HasSuffix(proofs[id][0], ": TestOne") {
			t.Errorf("%s is proved by %v, want TestOne alone", id, proofs[id])
		}
	}
	if len(proofs["A-02"]) != 0 {
		t.Errorf("TestMain is no test, and is listed for A-02")
	}
}

func TestTheTableIsFilledInAndTheTextKept(t *testing.T) {
	before := "# Title\n\n| id | what | tests |\n|---|---|---|\n| T-07 | collision | stale |\n| T-08 | limits |  |\n"
	after, ids := rewrite(before, map[string][]string{"T-07": {"pkg/a: TestA", "pkg/a: TestB"}})
	want := "# Title\n\n| id | what | tests |\n|---|---|---|\n| T-07 | collision | `pkg/a`: TestA, TestB |\n| T-08 | limits | not yet |\n"
	if after != want {
		t.Errorf("have\n%s\nwant\n%s", after, want)
	}
	if strings.Join(ids, " ") != "T-07 T-08" {
		t.Errorf("ids are %v", ids)
	}
}
