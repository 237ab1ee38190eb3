package main

import (
	"slices"
	"strings"
)

// rewrite fills the third column of every row whose first is a requirement's
// id, and returns the document and the ids in their order.
func rewrite(document string, proofs map[string][]string) (string, []string) {
	var ids []string
	lines := strings.Split(document, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		id := strings.TrimSpace(cells[1])
		if reqID.FindString(id) != id || id == "" {
			continue
		}
		ids = append(ids, id)
		lines[i] = "| " + id + " | " + strings.TrimSpace(cells[2]) + " | " + tests(proofs[id]) + " |"
	}
	return strings.Join(lines, "\n"), ids
}

// tests lists tests by package, which is what can be run.
func tests(proofs []string) string {
	if len(proofs) == 0 {
		return "not yet"
	}
	var packages []string
	byPackage := map[string][]string{}
	for _, proof := range proofs {
		folder, name, _ := strings.Cut(proof, ": ")
		if !slices.Contains(packages, folder) {
			packages = append(packages, folder)
		}
		byPackage[folder] = append(byPackage[folder], name)
	}
	var out []string
	for _, folder := range packages {
		out = append(out, "`"+folder+"`: "+strings.Join(byPackage[folder], ", "))
	}
	return strings.Join(out, "; ")
}
