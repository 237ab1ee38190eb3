package podserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
)

const namespace = "site-a"

// program is one whose API and health both wait for a request's end when they are asked for /stream.
func program(t *testing.T, work ...func(context.Context)) Program {
	t.Helper()
	ca := probetest.NewAuthority(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	return Program{
		Namespace: namespace, Credentials: ca.Credentials(t, ca.Namespace(t, namespace)), Log: logr.Discard(), Work: work,
		API: handler,
		Health: func(ready func() error) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/readyz" {
					if err := ready(); err != nil {
						http.Error(w, err.Error(), http.StatusServiceUnavailable)
					}
					return
				}
				handler(w, r)
			})
		},
	}
}

func serve(t *testing.T, p Program) (s *Server, stop func() error) {
	t.Helper()
	s, err := Listen("127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, p) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(3 * shutdownTimeout):
			return errors.New("still serving")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return s, stop
}

func TestAnAddressInUseIsToldByItsFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for flag, addresses := range map[string][2]string{
		"--listen":        {taken.Addr().String(), "127.0.0.1:0"},
		"--health-listen": {"127.0.0.1:0", taken.Addr().String()},
	} {
		if _, err := Listen(addresses[0], addresses[1]); err == nil || !strings.HasPrefix(err.Error(), flag+": ") {
			t.Errorf("error %v, want one that names %s", err, flag)
		}
	}
}

// Req: P-11
func TestWithoutUsableCertificatesNobodyIsSentHere(t *testing.T) {
	ca, dir := probetest.NewAuthority(t), t.TempDir()
	credentials := api.FileCredentials(dir, func(error) {})
	if err := checkCredentials(credentials, namespace); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without files: %v, want that they do not exist", err)
	}
	ca.Write(t, dir, ca.Namespace(t, "site-b"))
	if err := checkCredentials(credentials, namespace); err == nil {
		t.Error("ready with another namespace's certificate")
	}
	ca.Write(t, dir, ca.Namespace(t, namespace))
	if err := checkCredentials(credentials, namespace); err != nil {
		t.Errorf("with its own certificate: %v", err)
	}
}

// Req: P-11
func TestTheEndComesInOrderAndWaitsForNoStream(t *testing.T) {
	var readyAtTheEnd atomic.Int64
	health := make(chan string, 1)
	p := program(t, func(ctx context.Context) {
		<-ctx.Done()
		response, err := http.Get(<-health + "/readyz")
		if err == nil {
			readyAtTheEnd.Store(int64(response.StatusCode))
			_ = response.Body.Close()
		}
	})
	s, stop := serve(t, p)
	url := "http://" + s.health.Addr().String()
	if response, err := http.Get(url + "/readyz"); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("ready: %v, %v", response, err)
	}
	stream, err := http.Get(url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	health <- url
	began := time.Now()
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(began); took >= shutdownTimeout {
		t.Errorf("it took %s to end, with a stream open", took)
	}
	if code := readyAtTheEnd.Load(); code != http.StatusServiceUnavailable {
		t.Errorf("while its work ended it said %d to whoever asked whether it is ready", code)
	}
}

func TestAListenerThatFailsEndsTheProgram(t *testing.T) {
	s, err := Listen("127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.api.Close()
	if err := s.Serve(t.Context(), program(t)); err == nil || !strings.HasPrefix(err.Error(), "--listen: ") {
		t.Errorf("ended with %v, want an error of --listen", err)
	}
}

// Req: P-11 (whoever reaches the pod cannot make it look dead)
func TestAPeerThatKeepsSilentLosesItsConnection(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes longer than BodyTimeout")
	}
	s, _ := serve(t, program(t))
	var all sync.WaitGroup
	for name, sent := range map[string]string{
		"nothing":              "",
		"half a header":        "GET /livez HTTP/1.1\r\nHost: x\r\n",
		"a body that is late":  "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"a chunk that is late": "POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
	} {
		for _, to := range []net.Listener{s.api, s.health} {
			all.Go(func() {
				if err := silent(to.Addr().String(), sent); err != nil {
					t.Errorf("who sends %s: %v", name, err)
				}
			})
		}
	}
	all.Wait()
}

// silent sends and says nothing more; the error is that the connection is still open long after.
func silent(address, sent string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, sent)
	_ = conn.SetDeadline(time.Now().Add(2 * BodyTimeout))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it still has the connection after %s", 2*BodyTimeout)
	}
	return nil
}
