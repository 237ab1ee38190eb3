package etcd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

const (
	clientSocket = "client.sock"
	// httpSocket carries etcd's /health and /metrics. With a socket of their
	// own, gRPC is served without a multiplexer in front of it, and slow
	// readers of one cannot starve the other (etcd-io/etcd#15402).
	httpSocket = "http.sock"

	// maxSocketPath is what fits into sun_path of sockaddr_un on Linux, less
	// the terminating zero.
	maxSocketPath = 107
)

// socketDir is the data directory under a name short enough for a socket
// address.
type socketDir struct {
	path string
	// held keeps /proc/self/fd/N alive; nil if the data directory's own name is
	// short enough.
	held *os.File
}

// openSocketDir finds that name. The sockets always lie in the data directory;
// a path that is too long is reached through this process's own descriptor,
// which leaves nothing behind in a shared /tmp when the process is killed.
func openSocketDir(dataDir string) (*socketDir, error) {
	if len(filepath.Join(dataDir, clientSocket)) <= maxSocketPath {
		return &socketDir{path: dataDir}, nil
	}
	held, err := os.Open(dataDir)
	if err != nil {
		return nil, fmt.Errorf("--data-dir %q: %w", dataDir, err)
	}
	short := fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	if _, err := os.Stat(short); err != nil {
		held.Close()
		return nil, fmt.Errorf("--data-dir %q: the path is %d bytes too long for the unix sockets in it: name a shorter one",
			dataDir, len(filepath.Join(dataDir, clientSocket))-maxSocketPath)
	}
	return &socketDir{path: short, held: held}, nil
}

func (d *socketDir) join(name string) string { return filepath.Join(d.path, name) }

func (d *socketDir) close() {
	if d.held != nil {
		d.held.Close()
	}
}

// RunningStore is the address of the store of the server that runs on a data directory, for a client in another process; false if
// nobody listens there. Call close when the client is closed.
func RunningStore(dataDir string) (endpoint string, running bool, close func()) {
	dir, err := openSocketDir(dataDir)
	if err != nil {
		return "", false, func() {}
	}
	conn, err := net.Dial("unix", dir.join(clientSocket))
	if err != nil {
		dir.close()
		return "", false, func() {}
	}
	conn.Close()
	return "unix://" + dir.join(clientSocket), true, dir.close
}
