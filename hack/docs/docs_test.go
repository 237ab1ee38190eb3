// Package docs keeps the project's documents true where a machine can tell.
package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// notYet are paths that documents name as missing; one that appears has to be described.
func notYet() []string { return nil }

// documents returns the text of every Markdown file of the repository by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"_local", "node_modules"}, entry.Name())):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		texts[filepath.ToSlash(relative)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "docs/design.md", "docs/operations.md"} {
		if texts[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	return texts
}

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	texts := documents(t)
	for name, text := range texts {
		for _, match := range link.FindAllStringSubmatch(prose(text), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := name
			if target != "" {
				to = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s: %v", name, match[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(texts[to]), anchor) {
				t.Errorf("%s links to %s: %s has no such heading", name, match[1], to)
			}
		}
	}
}

func TestPathsInBackticksExist(t *testing.T) {
	quoted := regexp.MustCompile("`((?:apis|artifacts|cmd|docs|generated|hack|pkg|test)/[A-Za-z0-9_./-]+)`")
	for name, text := range documents(t) {
		for _, match := range quoted.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(root, match[1]))
			switch missing := slices.Contains(notYet(), match[1]); {
			case missing && err == nil:
				t.Errorf("%s is there now: describe it in the documents that call it missing, %s for one", match[1], name)
			case !missing && err != nil:
				t.Errorf("%s names %s: %v", name, match[1], err)
			}
		}
	}
}

func TestNamedMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:`|^    )make ([a-z-]+)")
	for name, text := range documents(t) {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + match[1] + `:`).Match(makefile) {
				t.Errorf("%s names make %s, which the Makefile does not have", name, match[1])
			}
		}
	}
}

// CI runs the command that the README gives, and nothing else.
func TestCIRunsTheTestCommandOfTheReadme(t *testing.T) {
	run, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(documents(t)["README.md"], "    make test ") || !strings.Contains(string(run), "exec make test\n") {
		t.Error("README.md and .ci/run do not both name make test")
	}
}

// The shell examples are at least shell.
func TestShellExamplesParse(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n *```sh\n(.*?)\n *```")
	for name, text := range documents(t) {
		for _, match := range block.FindAllStringSubmatch(text, -1) {
			command := exec.Command(shell, "-n")
			command.Stdin = strings.NewReader(match[1])
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", name, err, output, match[1])
			}
		}
	}
}

// prose is a document without its code.
func prose(text string) string {
	return regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllString(text, "")
}

// anchors are the names under which a document's headings can be linked to.
func anchors(text string) []string {
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(text, -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, match[1]))
	}
	return names
}
