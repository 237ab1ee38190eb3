package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

// clockTick is the unit of the times in /proc/<pid>/stat, the same on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpu is what a process has computed so far, in user and kernel mode.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	// The second field is a name in parentheses, which may hold spaces; utime and stime are the fields 14 and 15.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		must(b, err)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// rss is the memory of a process that is resident, in bytes.
func rss(b *testing.B, pid int) float64 {
	b.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(b, err)
	pages, err := strconv.ParseInt(string(bytes.Fields(statm)[1]), 10, 64)
	must(b, err)
	return float64(pages) * float64(os.Getpagesize())
}

// servers are the processes that a request may keep busy: both API servers and the host's store; ours is in its server.
func servers(b *testing.B) []int {
	b.Helper()
	var pids []int
	for _, file := range []string{"cluster/run/kube-apiserver.pid", "cluster/run/etcd.pid", "fieldplane-apiserver.pid"} {
		pid := child.Alive(filepath.Join(env.Dir, file))
		if pid == 0 {
			b.Fatalf("%s names no process that runs", file)
		}
		pids = append(pids, pid)
	}
	return pids
}

func cpuOf(b *testing.B, pids []int) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, pid := range pids {
		sum += cpu(b, pid)
	}
	return sum
}
