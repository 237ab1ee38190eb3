package etcd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	childDataDir = "FIELDPLANE_ETCD_TEST_DATA_DIR"
	childUnsafe  = "FIELDPLANE_ETCD_TEST_UNSAFE_NO_FSYNC"
)

// TestMain lets the test binary be the server process that the tests start,
// watch and kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDataDir); dir != "" {
		os.Exit(serveAsChild(dir))
	}
	os.Exit(m.Run())
}

func serveAsChild(dir string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := start(ctx, Options{DataDir: dir}, func(cfg *embed.Config) {
		cfg.UnsafeNoFsync = os.Getenv(childUnsafe) != ""
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("READY", s.Endpoint())
	io.Copy(io.Discard, os.Stdin)
	if err := s.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type child struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	stderr   *bytes.Buffer
	endpoint string
}

// startChild runs a server in a process of its own, under the given command if
// there is one, and waits for it.
func startChild(t *testing.T, dataDir string, env []string, under ...string) *child {
	t.Helper()
	argv := append(append([]string{}, under...), os.Args[0])
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), stderr: &bytes.Buffer{}}
	c.cmd.Env = append(append(os.Environ(), childDataDir+"="+dataDir), env...)
	c.cmd.Stderr = c.stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.cmd.Wait()
		t.Fatalf("the server did not start: %v\n%s", err, c.stderr)
	}
	c.endpoint = strings.TrimSpace(strings.TrimPrefix(line, "READY "))
	return c
}

// kill ends the process as a power cut would, as far as a process can tell.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
}

func (c *child) stop(t *testing.T) {
	t.Helper()
	c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("the server did not stop cleanly: %v\n%s", err, c.stderr)
	}
}

func newClient(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func deadline(t *testing.T, after time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}
