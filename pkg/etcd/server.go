package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
)

const (
	// DefaultQuotaBytes is the size of the store at which writes are refused:
	// the largest that etcd recommends.
	DefaultQuotaBytes = 8 << 30

	memberName = "fieldplane"

	// peerURL is nobody's address. A member must advertise one, but with no
	// peer there is nothing to listen for, and an unauthenticated raft endpoint
	// that does not exist needs no protection.
	peerURL = "unix://no-peer"

	// streamGrace is how long Close waits for clients that keep a stream open,
	// as a forgotten watch does. Without it etcd waits 7 s, which is half of
	// what the whole process has after SIGTERM.
	streamGrace = time.Second
)

// Options say where and how large the embedded store is.
type Options struct {
	// DataDir is made if absent, and must be this user's alone.
	DataDir string
	// QuotaBytes bounds the store's file; 0 means DefaultQuotaBytes.
	QuotaBytes int64
}

// Server is a running embedded etcd.
type Server struct {
	etcd    *embed.Etcd
	grpc    atomic.Pointer[grpc.Server]
	lock    *os.File
	sockets *socketDir
	quota   int64

	err     chan error
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once
	release error
}

// Start runs an embedded etcd and returns once it answers.
//
// ctx bounds the start alone. A *DataDirInUseError means that another process
// has the directory. After an error that wraps the context's, etcd may still be
// starting, and is stopped once it has; until then the directory stays locked.
func Start(ctx context.Context, opts Options) (*Server, error) {
	return start(ctx, opts, func(*embed.Config) {})
}

// start is Start with a way for tests to break the configuration, and so to
// prove that they would notice.
func start(ctx context.Context, opts Options, alter func(*embed.Config)) (*Server, error) {
	if opts.QuotaBytes == 0 {
		opts.QuotaBytes = DefaultQuotaBytes
	}
	dir, err := prepareDataDir(opts.DataDir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	if err := restoreInterrupted(dir); err != nil {
		return nil, errors.Join(err, unlockDataDir(lock))
	}
	sockets, err := openSocketDir(dir)
	if err != nil {
		return nil, errors.Join(err, unlockDataDir(lock))
	}
	s := &Server{
		lock:    lock,
		sockets: sockets,
		quota:   opts.QuotaBytes,
		err:     make(chan error, 1),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
	}
	cfg := s.config(dir)
	alter(cfg)

	// StartEtcd waits without end for a database that a foreign etcd holds, so
	// it must not hold up a SIGTERM.
	type outcome struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan outcome, 1)
	go func() {
		e, err := embed.StartEtcd(cfg)
		started <- outcome{e, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if o := <-started; o.etcd != nil {
				o.etcd.Close()
			}
			s.sockets.close()
			_ = unlockDataDir(lock)
		}()
		return nil, fmt.Errorf("start etcd in %s: %w", dir, context.Cause(ctx))
	case o := <-started:
		if o.err != nil {
			s.sockets.close()
			return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", dir, o.err), unlockDataDir(lock))
		}
		s.etcd = o.etcd
	}

	go s.watch()
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.err:
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", dir, err), s.closeNow())
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", dir, context.Cause(ctx)), s.closeNow())
	}
	if err := s.recoverSpace(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", dir, err), s.closeNow())
	}
	return s, nil
}

func (s *Server) config(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = dir
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: "no-peer"}}
	cfg.InitialCluster = memberName + "=" + peerURL
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: s.sockets.join(clientSocket)}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Path: s.sockets.join(httpSocket)}}
	cfg.EnableGRPCGateway = false
	cfg.QuotaBackendBytes = s.quota
	// The API server compacts (--etcd-compaction-interval). A second compactor
	// would cut watches that the first has promised to keep.
	cfg.AutoCompactionRetention = "0"
	// Acknowledged means on disk. Never true outside a test that proves this.
	cfg.UnsafeNoFsync = false
	// Nobody logs in: who can reach the socket is root of the store.
	cfg.AuthToken = ""
	cfg.ServiceRegister = func(server *grpc.Server) { s.grpc.Store(server) }
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(klog.Background().WithName("etcd"), s.closing))
	return cfg
}

// Endpoint is the address for --etcd-servers or a client of this process; a
// data directory with a long path has an address that other processes cannot
// use.
func (s *Server) Endpoint() string { return "unix://" + s.sockets.join(clientSocket) }

// Err yields one error if etcd ends by itself, after which the process must end
// too, since nothing that it acknowledges could be kept. It is closed without
// one by Close.
func (s *Server) Err() <-chan error { return s.err }

// watch turns every way in which etcd can end into one error. Failures to write
// the log of transactions are not among them: etcd then ends the process by
// itself, at once.
func (s *Server) watch() {
	defer close(s.err)
	select {
	case <-s.closing:
	case err := <-s.etcd.Err():
		select {
		case <-s.closing:
		default:
			s.err <- fmt.Errorf("embedded etcd stopped serving: %w", orUnexplained(err))
		}
	case <-s.etcd.Server.StopNotify():
		select {
		case <-s.closing:
		default:
			s.err <- fmt.Errorf("embedded etcd stopped: %w", orUnexplained(nil))
		}
	}
}

func orUnexplained(err error) error {
	if err == nil {
		return errors.New("no reason was given; see the log lines of etcd above")
	}
	return err
}

// Check returns an error while an alarm of etcd is raised, and says what to do
//
func (s *Server) Check() error {
	for _, alarm := range s.etcd.Server.Alarms() {
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			return fmt.Errorf("the store has reached its quota of %d bytes and accepts deletes alone: restart the server, "+
				"and if that does not make room, restart it with a larger --embedded-etcd-quota-bytes", s.quota)
		case etcdserverpb.AlarmType_CORRUPT:
			return errors.New("the store is corrupt: stop the server and put a backup of its data directory back")
		}
	}
	return nil
}

// Snapshot writes the whole store as of now, followed by its SHA-256, in the
// format that Restore and `etcdutl snapshot restore` read.
func (s *Server) Snapshot(ctx context.Context, w io.Writer) error {
	client := v3client.New(s.etcd.Server)
	defer client.Close()
	return StreamFrom(client)(ctx, w)
}

// recoverSpace does what etcd's documentation tells an operator to do by hand
// after NOSPACE. A start is the one moment at which no watch depends on the
// history that a compaction throws away.
func (s *Server) recoverSpace(ctx context.Context) error {
	full := false
	for _, alarm := range s.etcd.Server.Alarms() {
		full = full || alarm.Alarm == etcdserverpb.AlarmType_NOSPACE
	}
	if !full {
		return nil
	}
	client := v3client.New(s.etcd.Server)
	defer client.Close()
	logger := klog.FromContext(ctx).WithName("etcd")

	response, err := client.Get(ctx, "fieldplane-revision")
	if err != nil {
		return fmt.Errorf("recover space: %w", err)
	}
	if revision := response.Header.Revision; revision > s.etcd.Server.KV().FirstRev() {
		// Physical: defragmenting gains nothing before the old revisions are
		// really gone.
		if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
			return fmt.Errorf("recover space: compact at revision %d: %w", revision, err)
		}
	}
	if err := s.etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("recover space: defragment: %w", err)
	}
	size := s.etcd.Server.Backend().Size()
	if size >= s.quota {
		logger.Info("The store is still full after compaction: restart with a larger --embedded-etcd-quota-bytes", "bytes", size, "quotaBytes", s.quota)
		return nil
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{
		MemberID: uint64(s.etcd.Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE,
	}); err != nil {
		return fmt.Errorf("recover space: disarm the alarm: %w", err)
	}
	logger.Info("The store had reached its quota and has room again", "bytes", size, "quotaBytes", s.quota)
	return nil
}

// Close stops etcd and gives the data directory free. Call it last: what still
// writes when it is called fails.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() {
		close(s.closing)
		go func() {
			defer close(s.closed)
			grace, cancel := context.WithTimeout(ctx, streamGrace)
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				<-grace.Done()
				if server := s.grpc.Load(); server != nil {
					server.Stop()
				}
			}()
			s.etcd.Close()
			cancel()
			<-stopped
			s.sockets.close()
			s.release = unlockDataDir(s.lock)
		}()
	})
	select {
	case <-s.closed:
		return s.release
	case <-ctx.Done():
		return fmt.Errorf("close etcd: %w", context.Cause(ctx))
	}
}

// closeNow ends a start that failed.
func (s *Server) closeNow() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Close(ctx)
}
