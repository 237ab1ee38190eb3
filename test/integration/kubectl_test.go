package integration

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// edit runs kubectl edit, or another command that opens an editor, with sed as
// the editor.
func edit(t testing.TB, script string, args ...string) (string, error) {
	t.Helper()
	output, err := kubectlCommand(t.Context(), "KUBE_EDITOR=sed -i "+script, args...).CombinedOutput()
	return string(output), err
}

func kubectlCommand(ctx context.Context, variable string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(env.BinDir, "kubectl"),
		append([]string{"--kubeconfig", env.Cluster.Kubeconfig()}, args...)...)
	command.Env = append(os.Environ(), variable)
	return command
}

// following runs a kubectl command that does not end by itself, and returns its
// lines as they come.
func following(t testing.TB, args ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	command := kubectlCommand(ctx, "", args...)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = command.Wait()
	})
	return lines
}

// awaitLine reads lines until one contains the text.
func awaitLine(t testing.TB, lines <-chan string, text string) {
	t.Helper()
	var seen []string
	limit := time.After(10 * time.Second)
	for {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatalf("the output ended without %q: %q", text, seen)
			}
			if strings.Contains(line, text) {
				return
			}
			seen = append(seen, line)
		case <-limit:
			t.Fatalf("no line with %q: %q", text, seen)
		}
	}
}

// kubectlFails runs a kubectl command that must fail and say each of the texts.
func kubectlFails(t testing.TB, input string, args []string, texts ...string) {
	t.Helper()
	output, err := env.Kubectl(t, input, args...)
	if err == nil {
		t.Errorf("kubectl %s succeeded:\n%s", strings.Join(args, " "), output)
		return
	}
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("kubectl %s says nothing of %q:\n%s", strings.Join(args, " "), text, output)
		}
	}
}
