// Package npm installs the programs of an interoperability test that come from npm.
package npm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Install installs what the directory's package-lock.json names, unless that is there already. No package's install
// script is run.
func Install(directory string) error {
	want, err := os.ReadFile(filepath.Join(directory, "package-lock.json"))
	if err != nil {
		return err
	}
	mark := filepath.Join(directory, "node_modules", ".installed")
	if have, err := os.ReadFile(mark); err == nil && bytes.Equal(have, want) {
		return nil
	}
	command := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	command.Dir = directory
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in %s: %w\n%s", directory, err, output)
	}
	return os.WriteFile(mark, want, 0o644)
}
