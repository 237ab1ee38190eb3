package etcd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Req: A-02
func TestEveryAcknowledgedWriteSurvivesKill9(t *testing.T) {
	const writes, writers, kills = 1000, 8, 4
	dataDir := filepath.Join(t.TempDir(), "store")
	server := startChild(t, dataDir, nil)

	var (
		mu           sync.Mutex
		acknowledged = map[string]string{}
		next         atomic.Int64
	)
	for round := range kills + 1 {
		until := int64(writes * (round + 1) / (kills + 1))
		ctx, cancel := context.WithCancel(deadline(t, time.Minute))
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.endpoint}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for {
					i := next.Add(1)
					if i > writes {
						return
					}
					key, value := fmt.Sprintf("key-%04d", i), fmt.Sprintf("value-%d-%04d", round, i)
					if _, err := client.Put(ctx, key, value); err != nil {
						// Not acknowledged: whether it is there is open, and somebody else's
						// number comes next.
						return
					}
					mu.Lock()
					acknowledged[key] = value
					mu.Unlock()
				}
			})
		}
		if round < kills {
			// The writers are busy at the moment of the kill: it comes in the
			// middle of this round's numbers.
			for next.Load() < until && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			server.kill()
			cancel()
		}
		group.Wait()
		cancel()
		client.Close()
		if round < kills {
			server = startChild(t, dataDir, nil)
		}
	}

	if got := len(acknowledged); got < writes-writers*kills || got > writes {
		t.Fatalf("%d of %d writes were acknowledged; only those in flight at one of %d kills may be missing", got, writes, kills)
	}
	response, err := newClient(t, server.endpoint).Get(deadline(t, 10*time.Second), "key-", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, kv := range response.Kvs {
		stored[string(kv.Key)] = string(kv.Value)
	}
	for key, value := range acknowledged {
		if stored[key] != value {
			t.Errorf("%s was acknowledged as %q and is %q after the restart", key, value, stored[key])
		}
	}
}

// A process that is killed leaves its unsynced pages to the kernel, so that the
// test above would pass without a single fsync. This one follows the system
// calls: the log of transactions with the value in it is synced before the
// reply with that value is written to the socket.
//
// Req: A-02
func TestAWriteIsSyncedBeforeItIsAcknowledged(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("strace is needed here: apt-get install strace")
		}
		t.Skip("strace is not installed: apt-get install strace")
	}
	for _, tc := range []struct {
		name       string
		env        []string
		violations bool
	}{
		{name: "as the server runs etcd, every write is synced first"},
		{name: "without fsync the check sees that no write is", env: []string{childUnsafe + "=1"}, violations: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const writes = 50
			dir := t.TempDir()
			trace := filepath.Join(dir, "trace")
			server := startChild(t, filepath.Join(dir, "store"), tc.env,
				strace, "-f", "-y", "-s", "65536", "-e", "trace=write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync", "-e", "signal=none", "-o", trace)
			client := newClient(t, server.endpoint)
			ctx := deadline(t, time.Minute)
			for i := range writes {
				// The read in the transaction puts the value into the reply, where
				// the trace can show it.
				value := syncedValue(i)
				response, err := client.Txn(ctx).Then(clientv3.OpPut("key", value), clientv3.OpGet("key")).Commit()
				if err != nil {
					t.Fatal(err)
				}
				if got := string(response.Responses[1].GetResponseRange().Kvs[0].Value); got != value {
					t.Fatalf("wrote %q and read %q", value, got)
				}
			}
			server.stop(t)

			file, err := os.Open(trace)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			violations, err := unsyncedReplies(bufio.NewReader(file), writes)
			if err != nil {
				t.Fatal(err)
			}
			if tc.violations {
				if len(violations) != writes {
					t.Fatalf("want a violation for each of %d writes, got %d: %v", writes, len(violations), violations)
				}
				return
			}
			for _, violation := range violations {
				t.Error(violation)
			}
		})
	}
}

func syncedValue(i int) string { return fmt.Sprintf("synced-value-%06d", i) }

var (
	straceCall    = regexp.MustCompile(`^(\d+)\s+(\w+)\((\d+)<(.*?)>(.*)$`)
	straceResumed = regexp.MustCompile(`^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$`)
	straceResult  = regexp.MustCompile(`\)\s+= (-?\d+)`)
	tracedValue   = regexp.MustCompile(`synced-value-(\d{6})`)
)

// unsyncedReplies reads the trace in the order of its lines and tells of each
// reply whose value was not yet on disk. It is an error if a value's path
// cannot be followed at all: a check that finds nothing to look at proves
// nothing.
func unsyncedReplies(r *bufio.Reader, writes int) ([]string, error) {
	type open struct{ call, path, args string }
	var (
		unfinished = map[string]open{}
		logged     = map[string]string{} // value → log file, once its write has returned
		synced     = map[string]bool{}
		pending    = map[string][]string{} // thread in a sync → the values that this sync covers
		replied    = map[string]bool{}
		violations []string
	)
	finished := func(pid string, o open, result string) {
		ok := straceResult.FindStringSubmatch(result)
		if ok == nil || strings.HasPrefix(ok[1], "-") {
			delete(pending, pid)
			return
		}
		switch o.call {
		case "fsync", "fdatasync":
			for _, value := range pending[pid] {
				synced[value] = true
			}
			delete(pending, pid)
		default:
			if strings.HasSuffix(o.path, ".wal") {
				for _, value := range tracedValue.FindAllString(o.args, -1) {
					logged[value] = o.path
				}
			}
		}
	}
	begun := func(pid string, o open) {
		switch o.call {
		case "fsync", "fdatasync":
			pending[pid] = nil
			for value, path := range logged {
				if path == o.path {
					pending[pid] = append(pending[pid], value)
				}
			}
		default:
			if !strings.HasPrefix(o.path, "socket:") && !strings.HasPrefix(o.path, "UNIX") {
				return
			}
			for _, value := range tracedValue.FindAllString(o.args, -1) {
				if !replied[value] && !synced[value] {
					violations = append(violations, fmt.Sprintf("%s was acknowledged before it was synced (in the log: %v)", value, logged[value] != ""))
				}
				replied[value] = true
			}
		}
	}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if m := straceResumed.FindStringSubmatch(line); m != nil {
			finished(m[1], unfinished[m[1]], m[3])
			delete(unfinished, m[1])
			continue
		}
		m := straceCall.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		o := open{call: m[2], path: m[4], args: m[5]}
		begun(m[1], o)
		if strings.HasSuffix(line, "<unfinished ...>") {
			unfinished[m[1]] = o
			continue
		}
		finished(m[1], o, m[5])
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	for i := range writes {
		value := syncedValue(i)
		if logged[value] == "" {
			return nil, fmt.Errorf("the trace shows no write of %s to a log file: the check cannot see what it is about", value)
		}
		if !replied[value] {
			return nil, fmt.Errorf("the trace shows no reply with %s: the check cannot see what it is about", value)
		}
	}
	return violations, nil
}
