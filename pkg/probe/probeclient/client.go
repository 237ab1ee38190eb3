// Package probeclient follows the states that a probe serves, and uses devices through it.
package probeclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
)

const (
	theProbe = "the probe"
	// silence is how long a probe may say nothing: three heartbeats.
	silence = 3 * api.DefaultHeartbeat
	// listTimeout bounds a whole List.
	listTimeout = 10 * time.Second
	// maxMessage bounds one message; 5000 modules with long texts need about 4 MiB. It also bounds what all messages
	// add up to: the pod is in the hands of whoever may edit the namespace, and this process serves all of them.
	maxMessage = 16 << 20
	// maxPage bounds a page of channels: a probe makes none of more than 4 MiB, and many may ask at once.
	maxPage = 8 << 20
)

// StaleError says that a probe stopped talking: what it said last is no longer known to be true.
type StaleError = peer.StaleError

// StatusError is an answer that is not 200 and carries no *api.Error.
type StatusError = peer.StatusError

// Dial opens a TCP connection.
type Dial = peer.Dial

// CredentialsOf are the controllers' own, for talking to probes of one namespace: no other's is believed (P-11, P-12).
func CredentialsOf(controllers *authority.ControllerClient, namespace string) api.Credentials {
	return func() (*tls.Certificate, *x509.CertPool, error) {
		config := controllers.TLSConfig(namespace)
		certificate, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
		return certificate, config.RootCAs, err
	}
}

// Client talks to one probe.
type Client struct {
	base  string
	url   string
	clock clock.Clock
	// http connects for each request, devices keeps its connection: devices are read every second.
	http, devices *http.Client
}

// New returns a client of the probe at address (host:port) in the namespace. The credentials are asked for every
// connection, so that they may change at any time.
func New(address, namespace string, credentials api.Credentials, dial Dial, c clock.Clock) *Client {
	return &Client{
		base:    "https://" + address,
		url:     "https://" + address + api.ModulesPath,
		http:    peer.HTTPClient(namespace, credentials, dial, false),
		devices: peer.HTTPClient(namespace, credentials, dial, true),
		clock:   c,
	}
}

// List returns the state of every module, within 10 s.
func (c *Client) List(ctx context.Context) (*api.List, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := c.get(ctx, c.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var list api.List
	if err := peer.ReadAnswer(body, maxMessage, &list); err != nil {
		return nil, fmt.Errorf("the probe's list: %w", err)
	}
	return &list, nil
}

// Channels returns one page of the channels of a module, named by its uid or name, within 10 s. A limit of 0 leaves it
// to the probe; token is "", or the Continue of the page before. What the probe refuses is an *api.Error: NotFound,
// NotDiscovered, or Expired when the channels were discovered anew and the reading must start again.
func (c *Client) Channels(ctx context.Context, module string, limit int, token string) (*api.ChannelPage, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if token != "" {
		query.Set("continue", token)
	}
	body, err := c.get(ctx, c.base+api.ChannelsPath(module)+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var page api.ChannelPage
	if err := peer.ReadAnswer(body, maxPage, &page); err != nil {
		return nil, fmt.Errorf("the probe's page of channels: %w", err)
	}
	return &page, nil
}

// Update is what is known after one message of the probe.
type Update struct {
	Probe api.ProbeInfo
	// Modules are all modules by name, with Stale as of now. The map must not be changed; it is a new one whenever
	// something is different.
	Modules map[string]api.ModuleState
	// Changed names the modules that are new or different since the Update before, Removed those that went. A
	// heartbeat that brings no news has neither.
	Changed, Removed []string
}

// Watch calls handle with everything the probe knows, then after every message, and returns when the probe closes
// the stream, falls silent for three heartbeats (*StaleError), or ctx ends; the error is never nil. Whoever called it must then
// take every module for Unknown until the next Watch has news.
func (c *Client) Watch(ctx context.Context, handle func(Update)) error {
	body, err := c.get(ctx, c.url+"?watch=true")
	if err != nil {
		return err
	}
	var state Update
	stream := peer.Stream{Who: theProbe, Clock: c.clock, Silence: silence, MaxMessage: maxMessage}
	return peer.Follow(ctx, stream, body, func(event api.Event) error {
		state = next(state, event)
		if size := sizeOf(state.Modules); size > maxMessage {
			return fmt.Errorf("its modules take %d MiB, more than any probe has to say", size>>20)
		}
		handle(state)
		return nil
	})
}

func (c *Client) get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(failureOf(response), response.Body.Close())
	}
	return response.Body, nil
}

// failureOf is what an answer that is not 200 says.
func failureOf(response *http.Response) error {
	return peer.Failure(theProbe, response, func(e *api.Error) bool { return e.Reason != "" && e.Code == response.StatusCode })
}

// sizeOf is about how much memory the states take.
func sizeOf(modules map[string]api.ModuleState) int {
	const fixed = 256
	size := 0
	for _, m := range modules {
		size += len(m.Channels.Revision) + len(m.Channels.Reason) + len(m.Channels.Message)
		size += fixed + len(m.Name) + len(m.UID) + len(m.Reason) + len(m.Message) + len(m.Health) + len(m.Episode)
		if i := m.Identity; i != nil {
			size += len(i.Vendor) + len(i.Product) + len(i.Serial) + len(i.Revision)
		}
	}
	return size
}

// next is the state after an event.
func next(before Update, event api.Event) Update {
	after := Update{Probe: event.Probe, Modules: before.Modules}
	modules := map[string]api.ModuleState{}
	if event.Type != api.Snapshot {
		maps.Copy(modules, before.Modules)
	}
	for _, name := range event.Removed {
		delete(modules, name)
	}
	for _, m := range event.Modules {
		modules[m.Name] = m
	}
	if event.Type == api.Heartbeat {
		stale := sets.New(event.Stale...)
		for name, m := range modules {
			m.Stale = stale.Has(name)
			modules[name] = m
		}
	}
	for name, m := range modules {
		if old, ok := before.Modules[name]; !ok || !old.Equal(m) {
			after.Changed = append(after.Changed, name)
		}
	}
	for name := range before.Modules {
		if _, ok := modules[name]; !ok {
			after.Removed = append(after.Removed, name)
		}
	}
	if len(after.Changed)+len(after.Removed) > 0 || before.Modules == nil {
		after.Modules = modules
	}
	slices.Sort(after.Changed)
	slices.Sort(after.Removed)
	return after
}
