package apiserver

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheDesignTellsTheAdmissionOrder compares the table in docs/design.md with the order that is in force.
func TestTheDesignTellsTheAdmissionOrder(t *testing.T) {
	design, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(design), "\n**Admission order**")
	section, _, _ = strings.Cut(section, "\n**")
	var told []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z, ]+) \|`).FindAllStringSubmatch(section, -1) {
		told = append(told, strings.Split(row[1], ", ")...)
	}
	if want := AdmissionOrder(); !slices.Equal(told, want) {
		t.Errorf("docs/design.md tells the order %v; it is %v", told, want)
	}
}
