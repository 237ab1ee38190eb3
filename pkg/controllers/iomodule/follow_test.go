package iomodule

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

// pipes is a listener without sockets.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// Req: P-11, P-12
func TestAProbeIsFollowedOnlyAsOneOfItsNamespace(t *testing.T) {
	now := time.Now()
	ca, err := authority.New(now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(now, authority.Namespace("site-north"))
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := api.StaticCredentials(ca.CertificatePEM(), pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	listener := make(pipes)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.ModulesPath || r.URL.Query().Get("watch") != "true" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Event{Type: api.Snapshot, Modules: []api.ModuleState{says("flow", true, true, api.ReasonConnected)}})
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(tls.NewListener(listener, api.ServerConfig("site-north", credentials))) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})

	follow := FollowProbes(authority.NewControllerClient(ca, clock.RealClock{}), listener.dial, clock.RealClock{})
	var heard []probeclient.Update
	hear := func(u probeclient.Update) { heard = append(heard, u) }
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := follow(ctx, "site-north", "192.0.2.1:9443", hear); err == nil {
		t.Error("a stream that ended gives no error")
	}
	if len(heard) != 1 || !heard[0].Modules["flow"].Connected {
		t.Errorf("heard %+v", heard)
	}
	var wrongName *tls.CertificateVerificationError
	if err := follow(ctx, "site-south", "192.0.2.1:9443", hear); !errors.As(err, &wrongName) {
		t.Errorf("a probe of another namespace gives %v", err)
	}
	if len(heard) != 1 {
		t.Error("it was heard")
	}
}
