// Package runtimeclient speaks with the runtime of a Unit for the server: it follows reports and tags, and gives orders.
package runtimeclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	theRuntime = "the runtime"
	// silence is how long a runtime may say nothing: three heartbeats.
	silence = 3 * api.Heartbeat
	// readTimeout bounds a whole Report or Tags, orderTimeout a Put: an order that takes longer is given anew.
	readTimeout  = 10 * time.Second
	orderTimeout = 2 * time.Second
	// writeTimeout bounds a WriteTags: a device may take several of its own timeouts.
	writeTimeout = 15 * time.Second
	// maxReport and maxTags bound one document of each kind: the pod is in the hands of whoever may edit the namespace, and
	// this process serves all of them.
	maxReport = 4 << 20
	maxTags   = 16 << 20
)

// StaleError says that a runtime stopped talking: what it said last is no longer known to be true.
type StaleError = peer.StaleError

// StatusError is an answer that is not 200 and carries no *api.Error.
type StatusError = peer.StatusError

// ConnectError says that no connection was made: nothing reached the runtime.
type ConnectError = peer.ConnectError

// Client talks to one runtime.
type Client struct {
	base  string
	clock clock.Clock
	// http connects for each request, orders keeps its connection: they come every few seconds for as long as the Unit lasts.
	http, orders *http.Client
}

// New returns a client of the runtime at address (host:port) in the namespace. The credentials are asked for every
// connection, so that they may change at any time; probeclient.CredentialsOf gives the controllers' own.
func New(address, namespace string, credentials probeapi.Credentials, dial peer.Dial, c clock.Clock) *Client {
	return &Client{
		base:   "https://" + address,
		clock:  c,
		http:   peer.HTTPClient(namespace, credentials, dial, false),
		orders: peer.HTTPClient(namespace, credentials, dial, true),
	}
}

// Close lets go of the connection that Put keeps. A client that has given no order need not be closed.
func (c *Client) Close() { c.orders.CloseIdleConnections() }

// Report returns what the runtime says of itself and its Unit, within 10 s. What the runtime refuses is an *api.Error here
// and in all of the methods.
func (c *Client) Report(ctx context.Context) (*api.Report, error) {
	report := &api.Report{}
	return answered(report, c.exchange(ctx, c.http, request{http.MethodGet, api.UnitPath, nil, readTimeout, maxReport}, report))
}

// Put gives an order, within 2 s. An order that is older than the one in force, or for another Unit, is an *api.Error of code
// 409.
func (c *Client) Put(ctx context.Context, order api.Order) (*api.Report, error) {
	report := &api.Report{}
	return answered(report, c.exchange(ctx, c.orders, request{http.MethodPut, api.UnitPath, order, orderTimeout, maxReport}, report))
}

// Tags returns every tag with its value, within 10 s.
func (c *Client) Tags(ctx context.Context) (*api.TagList, error) {
	tags := &api.TagList{}
	return answered(tags, c.exchange(ctx, c.http, request{http.MethodGet, api.TagsPath, nil, readTimeout, maxTags}, tags))
}

// WriteTags asks for values to be written, within 15 s. A *ConnectError or an *api.Error means that nothing was written; after
// any other error nobody knows.
func (c *Client) WriteTags(ctx context.Context, writes api.WriteRequest) (*api.WriteResponse, error) {
	response := &api.WriteResponse{}
	return answered(response, c.exchange(ctx, c.http, request{http.MethodPut, api.TagsPath, writes, writeTimeout, maxReport}, response))
}

// WatchReports calls handle with the report of now, and with every later one, and returns when the runtime closes the stream,
// falls silent for three heartbeats (*StaleError), or ctx ends; the error is never nil.
func (c *Client) WatchReports(ctx context.Context, handle func(api.Report)) error {
	return watch(ctx, c, api.UnitPath, maxReport, handle)
}

// WatchTags calls handle with every event, heartbeats too, and ends as WatchReports does. The first is a TagSnapshot.
func (c *Client) WatchTags(ctx context.Context, handle func(api.TagEvent)) error {
	return watch(ctx, c, api.TagsPath, maxTags, handle)
}

func watch[T any](ctx context.Context, c *Client, path string, limit int, handle func(T)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := c.send(ctx, c.http, http.MethodGet, path+"?watch=true", nil)
	if err != nil {
		return err
	}
	stream := peer.Stream{Who: theRuntime, Clock: c.clock, Silence: silence, MaxMessage: limit}
	return peer.Follow(ctx, stream, body, func(document T) error {
		handle(document)
		return nil
	})
}

// request is one that has one answer.
type request struct {
	method, path string
	body         any
	timeout      time.Duration
	// limit bounds the answer, in bytes.
	limit int64
}

func (c *Client) exchange(ctx context.Context, client *http.Client, r request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	body, err := c.send(ctx, client, r.method, r.path, r.body)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if err := peer.ReadAnswer(body, int(r.limit), answer); err != nil {
		return fmt.Errorf("the answer of the runtime: %w", err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, client *http.Client, method, path string, content any) (io.ReadCloser, error) {
	var encoded io.Reader
	if content != nil {
		text, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		encoded = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, encoded)
	if err != nil {
		return nil, err
	}
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
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
	return peer.Failure(theRuntime, response, func(e *api.Error) bool { return e.Message != "" && e.Code == response.StatusCode })
}

func answered[T any](answer *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return answer, nil
}
