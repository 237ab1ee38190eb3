package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVerbs(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "plant.sock")
	file := filepath.Join(dir, "plant.yaml")

	if err := os.WriteFile(file, []byte("talos: [{name: board, address: 127.0.71.1, uuid: x}]\nmodbus: [{name: pump, address: '127.0.71.2:5020', units: [{id: 1}]}]\nopcua: [{name: press, address: '127.0.71.3:4840'}]\nethernetip: [{name: packer, address: '127.0.71.4:44818'}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)

	go func() {
		ended <- run(ctx, []string{"--control", socket, "--file", file, "run"}, io.Discard, io.Discard)
	}()

	verb := func(args ...string) (string, error) {
		var out bytes.Buffer

		err := run(t.Context(), append([]string{"--control", socket}, args...), &out, io.Discard)

		return out.String(), err
	}

	for range 200 {
		if _, err := verb("list"); err == nil {
			break
		}

		time.Sleep(10 * time.Millisecond)
	}

	for _, step := range []struct {
		args string
		want string // in the output; "!" is an error
	}{
		{"list", "board"},
		{"list", "maintenance"},
		{"fault board silent", ""},
		{"list", "silent"},
		{"heal board", ""},
		{"wipe board", ""},
		{"power board", ""},
		{"uuid board y", ""},
		{"list", "y"},
		{"uuid board", ""},
		{"fault board early-boot", ""},
		{"fault board lost-unanswered", ""},
		{"heal board", ""},
		{"patch board {}", "!"}, // it has no configuration
		{"swap board board", "!"},
		{"swap board pump", "!"},
		{"power pump", "!"},
		{"power", "!"},
		{"uuid", "!"},
		{"patch board", "!"},
		{"swap board", "!"},
		{"fault pump closed", ""},
		{"heal pump", ""},
		{"fault press silent", ""},
		{"fault press exception", "!"},
		{"heal press", ""},
		{"fault packer slow", ""},
		{"list", "slow"},
		{"heal packer", ""},
		{"configs", "board"},
		{"configs board", "board"},
		{"--json configs", "\"board\""},
		{"--json list", "\"127.0.71.1:50000\""},
		{"fault board", "!"},
		{"fault nobody silent", "!"},
		{"heal", "!"},
		{"dance", "!"},
		{"", "!"},
		{"run", "!"}, // one runs already
	} {
		out, err := verb(strings.Fields(step.args)...)
		if (err != nil) != (step.want == "!") || err == nil && !strings.Contains(out, step.want) {
			t.Errorf("plant %s: %v\n%s", step.args, err, out)
		}
	}

	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}

	if _, err := verb("list"); err == nil {
		t.Error("the plant is still there")
	}
}
