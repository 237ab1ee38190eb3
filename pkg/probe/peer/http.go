// Package peer is how the controllers speak with probes and runtimes: HTTP/1.1 over mutual TLS, JSON, every answer bounded and
// every stream expected to beat.
package peer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	// connectTimeout bounds dial and handshake together, and then the wait for the answer's header.
	connectTimeout = 5 * time.Second
	// idleTimeout is how long a kept connection is kept without a request. It bounds what a forgotten client leaves.
	idleTimeout = 10 * time.Second
)

// Dial opens a TCP connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// ConnectError says that no connection was made: nothing was sent.
type ConnectError struct{ Err error }

// Error tells why.
func (e *ConnectError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// StatusError is an answer that is not 200 and says nothing that its protocol knows.
type StatusError struct {
	// Who answered, such as "the probe".
	Who  string
	Code int
	Body string
}

// Error tells what was answered.
func (e *StatusError) Error() string { return fmt.Sprintf("%s answers %d: %s", e.Who, e.Code, e.Body) }

// Failure is what an answer that is not 200 says: an error of the protocol, if the body is one by what complete makes of it, or else
// a StatusError of who answered.
func Failure[E any, T interface {
	*E
	error
}](who string, response *http.Response, complete func(T) bool) error {
	const (
		limit = 4 << 10
		shown = 256
	)
	text, _ := io.ReadAll(io.LimitReader(response.Body, limit))
	failure := T(new(E))
	if json.Unmarshal(text, failure) == nil && complete(failure) {
		return failure
	}
	return &StatusError{Who: who, Code: response.StatusCode, Body: string(text[:min(len(text), shown)])}
}

// HTTPClient returns a client for peers of the namespace, and nobody else (P-11, P-12). The credentials are asked for every
// connection, so that they may change at any time. With keep, one connection to each peer is kept between requests.
func HTTPClient(namespace string, credentials api.Credentials, dial Dial, keep bool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := connect(ctx, network, address, namespace, credentials, dial)
				if err != nil {
					return nil, &ConnectError{err}
				}
				return conn, nil
			},
			ResponseHeaderTimeout:  connectTimeout,
			MaxResponseHeaderBytes: 16 << 10,
			DisableKeepAlives:      !keep,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        idleTimeout,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func connect(ctx context.Context, network, address, namespace string, credentials api.Credentials, dial Dial) (net.Conn, error) {
	config, err := api.ClientConfig(namespace, credentials)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}
