package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// inProcess carries the server's requests to itself into its own handler, without a connection: of what it takes to store a fault
// under a thousand Units a third was TLS and HTTP/2 (P-16). They go through all that a request goes through, authentication,
// admission and audit included. What is followed, which has no end, takes the connection.
type inProcess struct {
	// handler is nil as long as there is no server.
	handler func() http.Handler
	// connection reaches the same server.
	connection http.RoundTripper
}

// RoundTrip answers as the server does.
func (p *inProcess) RoundTrip(request *http.Request) (*http.Response, error) {
	handler := p.handler()
	if handler == nil || request.URL.Query().Has("watch") {
		return p.connection.RoundTrip(request)
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	asked := request.Clone(request.Context())
	asked.RequestURI = request.URL.RequestURI()
	asked.Proto, asked.ProtoMajor, asked.ProtoMinor = "HTTP/2.0", 2, 0
	// The audit log names where a request comes from.
	asked.RemoteAddr = "127.0.0.1:0"
	if asked.Host == "" {
		asked.Host = request.URL.Host
	}
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	defer func() { _ = asked.Body.Close() }()

	answer := &answer{header: http.Header{}}
	if err := answer.of(handler, asked); err != nil {
		return nil, err
	}
	// The caller hears of its context's end, as it would on a connection, and not of what the handler made of it.
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return answer.response(request), nil
}

// answer is a response in the making.
type answer struct {
	header http.Header
	// sent is the header as it was when the body began; nil before that.
	sent http.Header
	code int
	body bytes.Buffer
}

// errAborted is what a connection that was cut in the middle of an answer would be.
var errAborted = errors.New("the server gave up the request")

// of has the handler answer. It panics to cut a connection, of which there is none.
func (a *answer) of(handler http.Handler, request *http.Request) (err error) {
	defer func() {
		switch cause := recover(); {
		case cause == nil:
		case cause == http.ErrAbortHandler:
			err = errAborted
		default:
			err = fmt.Errorf("%w: %v", errAborted, cause)
		}
	}()
	handler.ServeHTTP(a, request)
	return nil
}

func (a *answer) response(request *http.Request) *http.Response {
	a.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: a.sent, Body: io.NopCloser(bytes.NewReader(a.body.Bytes())), ContentLength: int64(a.body.Len()),
		Request: request,
	}
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.sent == nil {
		a.code, a.sent = code, a.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// Flush implements http.Flusher: the answer is whole when the handler returns.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }
