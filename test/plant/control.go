package plant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// command is the body of a command to a plant.
type command struct {
	Name string `json:"name"`
	// Mode is a fault.
	Mode string `json:"mode,omitempty"`
	// With is what else a command takes: a patch, a UUID, another member's name.
	With string `json:"with,omitempty"`
}

// Handler is the plant's control API.
func (p *Plant) Handler() http.Handler {
	mux := http.NewServeMux()

	get := func(path string, value func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(value()) //nolint:errcheck // the client sees a broken answer
		})
	}

	post := func(path string, do func(command) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var c command

			err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&c)
			if err == nil {
				err = do(c)
			}

			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}

	get("/v1/list", func() any { return p.List() })
	get("/v1/configs", func() any { return p.Configurations() })
	post("/v1/fault", func(c command) error { return p.Fault(c.Name, c.Mode) })
	post("/v1/heal", func(c command) error { return p.Heal(c.Name) })
	post("/v1/wipe", func(c command) error { return p.Wipe(c.Name) })
	post("/v1/power", func(c command) error { return p.PowerCycle(c.Name) })
	post("/v1/patch", func(c command) error { return p.Patch(c.Name, c.With) })
	post("/v1/uuid", func(c command) error { return p.SetUUID(c.Name, c.With) })
	post("/v1/swap", func(c command) error { return p.Swap(c.Name, c.With) })

	return mux
}

// Serve serves the control API until the context ends, and closes the listener.
func (p *Plant) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan struct{})

	go func() {
		defer close(stopped)

		<-ctx.Done()

		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()

		server.Shutdown(grace) //nolint:errcheck // the process ends anyway
	}()

	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}

	<-stopped

	return nil
}

// Listen opens the place of a control API. An address with a slash is a unix socket, any other a loopback address with
// port. It fails where a plant runs already.
func Listen(address string) (net.Listener, error) {
	if !isSocket(address) {
		address, err := loopback(address, 0)
		if err != nil {
			return nil, err
		}

		return net.Listen("tcp", address)
	}

	// A socket file outlives a plant that was killed; one that somebody answers at belongs to a running plant.
	if conn, err := net.Dial("unix", address); err == nil {
		conn.Close() //nolint:errcheck // nothing was said

		return nil, fmt.Errorf("a plant runs already at %s", address)
	}

	if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	if err := os.MkdirAll(filepath.Dir(address), 0o700); err != nil {
		return nil, err
	}

	listener, err := net.Listen("unix", address)
	if err != nil {
		return nil, err
	}

	return listener, os.Chmod(address, 0o600)
}

func isSocket(address string) bool { return strings.Contains(address, "/") }

// Remote is a plant in another process.
type Remote struct {
	address string
	client  *http.Client
}

// Connect returns the plant whose control API is served at an address.
func Connect(address string) *Remote {
	network := "tcp"
	if isSocket(address) {
		network = "unix"
	}

	return &Remote{address: address, client: &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
		},
	}}
}

// List is Plant.List.
func (r *Remote) List(ctx context.Context) ([]Status, error) {
	var out []Status

	err := r.do(ctx, http.MethodGet, "/v1/list", nil, &out)

	return out, err
}

// Configurations is Plant.Configurations.
func (r *Remote) Configurations(ctx context.Context) (map[string][]talosnode.Received, error) {
	var out map[string][]talosnode.Received

	err := r.do(ctx, http.MethodGet, "/v1/configs", nil, &out)

	return out, err
}

// Fault is Plant.Fault.
func (r *Remote) Fault(ctx context.Context, name, mode string) error {
	return r.do(ctx, http.MethodPost, "/v1/fault", command{Name: name, Mode: mode}, nil)
}

// Heal is Plant.Heal.
func (r *Remote) Heal(ctx context.Context, name string) error {
	return r.do(ctx, http.MethodPost, "/v1/heal", command{Name: name}, nil)
}

// Wipe is Plant.Wipe.
func (r *Remote) Wipe(ctx context.Context, name string) error {
	return r.do(ctx, http.MethodPost, "/v1/wipe", command{Name: name}, nil)
}

// PowerCycle is Plant.PowerCycle.
func (r *Remote) PowerCycle(ctx context.Context, name string) error {
	return r.do(ctx, http.MethodPost, "/v1/power", command{Name: name}, nil)
}

// Patch is Plant.Patch.
func (r *Remote) Patch(ctx context.Context, name, patch string) error {
	return r.do(ctx, http.MethodPost, "/v1/patch", command{Name: name, With: patch}, nil)
}

// SetUUID is Plant.SetUUID.
func (r *Remote) SetUUID(ctx context.Context, name, text string) error {
	return r.do(ctx, http.MethodPost, "/v1/uuid", command{Name: name, With: text}, nil)
}

// Swap is Plant.Swap.
func (r *Remote) Swap(ctx context.Context, name, other string) error {
	return r.do(ctx, http.MethodPost, "/v1/swap", command{Name: name, With: other}, nil)
}

func (r *Remote) do(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, method, "http://plant"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}

	resp, err := r.client.Do(req)
	if err != nil {
		return fmt.Errorf("no plant at %s: %w", r.address, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end

	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) //nolint:errcheck // what there is of it

		return errors.New(strings.TrimSpace(string(text)))
	}

	if out == nil {
		return nil
	}

	return json.NewDecoder(resp.Body).Decode(out)
}
