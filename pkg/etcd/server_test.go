package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func startServer(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(deadline(t, 30*time.Second), opts)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func putAndGet(t *testing.T, endpoint, value string) {
	t.Helper()
	client := newClient(t, endpoint)
	ctx := deadline(t, 10*time.Second)
	_, err := client.Put(ctx, "key", value)
	must(t, err)
	response, err := client.Get(ctx, "key")
	must(t, err)
	if got := string(response.Kvs[0].Value); got != value {
		t.Fatalf("wrote %q and read %q", value, got)
	}
}

// Req: A-02
func TestAServerKeepsItsDataAcrossRestarts(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "store")
	for round := range 3 {
		s := startServer(t, Options{DataDir: dataDir})
		client := newClient(t, s.Endpoint())
		ctx := deadline(t, 10*time.Second)
		_, err := client.Put(ctx, fmt.Sprintf("round-%d", round), "")
		must(t, err)
		response, err := client.Get(ctx, "round-", clientv3.WithPrefix(), clientv3.WithCountOnly())
		must(t, err)
		if got := response.Count; got != int64(round)+1 {
			t.Fatalf("round %d finds %d keys", round, got)
		}
		must(t, client.Close())
		must(t, s.Close(ctx))
		if _, open := <-s.Err(); open {
			t.Fatal("a close by us is no error of etcd")
		}
	}
}

// Req: A-02
func TestNobodyElseReachesTheStore(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "store")
	makeDir(t, dataDir, 0o755)
	before := listening(t)
	s := startServer(t, Options{DataDir: dataDir})
	putAndGet(t, s.Endpoint(), "value")

	info, err := os.Stat(dataDir)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory has mode %#o, want 0700", info.Mode().Perm())
	}
	sockets := 0
	must(t, filepath.WalkDir(dataDir, func(path string, entry fs.DirEntry, err error) error {
		if entry.Type() == fs.ModeSocket {
			sockets++
		}
		return err
	}))
	if sockets != 2 {
		t.Errorf("%d sockets in the data directory, want the client's and the one of /health and /metrics", sockets)
	}
	inside := 0
	for socket := range listening(t) {
		switch {
		case strings.Contains(socket, dataDir):
			inside++
		case !before[socket]:
			t.Errorf("the store also listens at %q, outside its data directory", socket)
		}
	}
	if inside != sockets {
		t.Errorf("/proc shows %d sockets of the store: the check above cannot see what it is about", inside)
	}
}

// listening returns this process's TCP sockets in state LISTEN and its named
// unix sockets, abstract ones included.
func listening(t *testing.T) map[string]bool {
	t.Helper()
	mine := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	for _, fd := range fds {
		link, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	found := map[string]bool{}
	for _, table := range []struct {
		file                string
		inode, state, named int
		listen              string
	}{
		{file: "/proc/self/net/tcp", inode: 9, state: 3, named: 1, listen: "0A"},
		{file: "/proc/self/net/tcp6", inode: 9, state: 3, named: 1, listen: "0A"},
		{file: "/proc/self/net/unix", inode: 6, state: 3, named: 7, listen: "00010000"},
	} {
		data, err := os.ReadFile(table.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		for _, line := range strings.Split(string(data), "\n")[1:] {
			fields := strings.Fields(line)
			if len(fields) > table.named && mine[fields[table.inode]] && fields[table.state] == table.listen {
				found[table.file+" "+fields[table.named]] = true
			}
		}
	}
	return found
}

// Req
func TestASecondProcessOnTheSameDataDirectoryIsRefusedAndTheFirstIsUnharmed(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "store")
	first := startChild(t, dataDir, nil)
	old := newClient(t, first.endpoint)
	_, err := old.Put(deadline(t, 10*time.Second), "key", "before")
	must(t, err)

	_, err = Start(deadline(t, 10*time.Second), Options{DataDir: dataDir})

	var inUse *DataDirInUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("want a *DataDirInUseError, got %v", err)
	}
	for _, part := range []string{fmt.Sprintf("pid %d on host ", first.cmd.Process.Pid), dataDir, "--data-dir"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	// A new connection is what a stolen socket would break; the old one would
	// live on.
	putAndGet(t, first.endpoint, "after")
	_, err = old.Put(deadline(t, 10*time.Second), "key", "after")
	must(t, err)

	first.stop(t)
	putAndGet(t, startServer(t, Options{DataDir: dataDir}).Endpoint(), "next")
}

// Req: A-02
func TestADataDirectoryWhosePathIsTooLongForASocketAddressWorks(t *testing.T) {
	temp := filepath.Join(t.TempDir(), "tmp")
	makeDir(t, temp, 0o700)
	t.Setenv("TMPDIR", temp)
	dataDir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 12), "store")
	if len(filepath.Join(dataDir, clientSocket)) <= maxSocketPath {
		t.Fatal("the path of the test is too short")
	}

	s := startServer(t, Options{DataDir: dataDir})

	putAndGet(t, s.Endpoint(), "value")
	if info, err := os.Stat(filepath.Join(dataDir, clientSocket)); err != nil || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("the socket is not in the data directory: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("something was left in the temporary directory: %v %v", left, err)
	}
}

// Req: A-02
func TestTheEndOfEtcdIsReported(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(s *Server)
	}{
		{name: "when its listener is gone", end: func(s *Server) { s.etcd.Clients[0].Close(); s.etcd.Clients[1].Close() }},
		{name: "when its raft loop stops", end: func(s *Server) { s.etcd.Server.HardStop() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startServer(t, Options{DataDir: filepath.Join(t.TempDir(), "store")})
			tc.end(s)
			select {
			case err := <-s.Err():
				if err == nil {
					t.Fatal("the channel was closed without an error")
				}
			case <-time.After(10 * time.Second):
				t.Fatal("nothing was reported")
			}
		})
	}
}

// Req: A-02
func TestCloseDoesNotWaitForAWatchThatNobodyEnds(t *testing.T) {
	s := startServer(t, Options{DataDir: filepath.Join(t.TempDir(), "store")})
	watch := newClient(t, s.Endpoint()).Watch(deadline(t, time.Minute), "key", clientv3.WithCreatedNotify())
	if response := <-watch; !response.Created {
		t.Fatalf("the watch was not created: %v", response)
	}
	begin := time.Now()
	must(t, s.Close(deadline(t, 10*time.Second)))
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}

// Req: A-02
func TestAStartDoesNotOutliveItsContextWhenAForeignEtcdHasTheDatabase(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "store")
	snap := filepath.Join(dataDir, memberDir, "snap")
	must(t, os.MkdirAll(snap, 0o700))
	database, err := os.OpenFile(filepath.Join(snap, "db"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer database.Close()
	must(t, flockNonBlocking(database))

	if _, err := Start(deadline(t, time.Second), Options{DataDir: dataDir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("want the context's error, got %v", err)
	}

	must(t, database.Close())
	for ctx := deadline(t, 20*time.Second); ; {
		s, err := Start(ctx, Options{DataDir: dataDir})
		var inUse *DataDirInUseError
		if errors.As(err, &inUse) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		must(t, err)
		must(t, s.Close(ctx))
		return
	}
}

// Req: A-02
func TestAFullStoreSaysSoAndHasRoomAgainAfterARestart(t *testing.T) {
	opts := Options{DataDir: filepath.Join(t.TempDir(), "store"), QuotaBytes: 4 << 20}
	s := startServer(t, opts)
	must(t, s.Check())
	client := newClient(t, s.Endpoint())
	ctx := deadline(t, time.Minute)
	value := strings.Repeat("v", 256<<10)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		// One key, so that the history is what fills the store.
		_, err = client.Put(ctx, "key", value)
	}
	if err == nil {
		t.Fatal("the quota was never reached")
	}
	for s.Check() == nil && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "quota of 4194304 bytes") {
		t.Fatalf("the check does not tell of the quota: %v", err)
	}
	must(t, client.Close())
	must(t, s.Close(ctx))

	s = startServer(t, opts)
	must(t, s.Check())
	putAndGet(t, s.Endpoint(), "there is room")
}

// Req: A-02
func TestASnapshotHoldsTheStoreAndItsChecksum(t *testing.T) {
	s := startServer(t, Options{DataDir: filepath.Join(t.TempDir(), "store")})
	putAndGet(t, s.Endpoint(), "value-in-the-snapshot")
	var out bytes.Buffer
	must(t, s.Snapshot(deadline(t, 10*time.Second), &out))
	if out.Len() <= sha256.Size {
		t.Fatalf("%d bytes", out.Len())
	}
	data, sum := out.Bytes()[:out.Len()-sha256.Size], out.Bytes()[out.Len()-sha256.Size:]
	if got := sha256.Sum256(data); !bytes.Equal(got[:], sum) {
		t.Error("the checksum does not fit")
	}
	if !bytes.Contains(data, []byte("value-in-the-snapshot")) {
		t.Error("a written value is missing")
	}
}
