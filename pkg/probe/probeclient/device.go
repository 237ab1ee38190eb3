package probeclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
)

// parting is how much longer than the probe a client waits at most, and partingShare what part of its own time it leaves for that, so that
// it is the probe's answer that it gets.
const (
	parting      = 500 * time.Millisecond
	partingShare = 10
)

// Check has the device of a module, named by its uid, checked now. What the probe itself refuses is an *api.Error in all of Check,
// Read and Write; a connection that was not made is a *peer.ConnectError.
func (c *Client) Check(ctx context.Context, uid string) (*api.CheckResponse, error) {
	answer := &api.CheckResponse{}
	return post(ctx, c, api.CheckPath(uid), answer, func(milliseconds int64) any {
		return api.CheckRequest{TimeoutMilliseconds: milliseconds}
	})
}

// Read reads channels of a module, named by its uid.
func (c *Client) Read(ctx context.Context, uid string, channels []api.Channel) (*api.ReadResponse, error) {
	answer, err := post(ctx, c, api.ReadPath(uid), &api.ReadResponse{}, func(milliseconds int64) any {
		return api.ReadRequest{Channels: channels, TimeoutMilliseconds: milliseconds}
	})
	if err == nil && answer.Error == nil && len(answer.Samples) != len(channels) {
		return nil, fmt.Errorf("the probe's samples: %d where %d were asked for", len(answer.Samples), len(channels))
	}
	return answer, err
}

// Write writes a value to a module, named by its uid, and never sends it twice. Its timeout is filled in. After an error other than an
// *api.Error and a *peer.ConnectError nobody knows whether it was done.
func (c *Client) Write(ctx context.Context, uid string, request api.WriteRequest) (*api.WriteResponse, error) {
	return post(ctx, c, api.WritePath(uid), &api.WriteResponse{}, func(milliseconds int64) any {
		request.TimeoutMilliseconds = milliseconds
		return request
	})
}

// Close lets go of the connection that Check, Read and Write keep.
func (c *Client) Close() { c.devices.CloseIdleConnections() }

// post sends what request returns, which is told how long the probe may take.
func post[A any](ctx context.Context, c *Client, path string, answer *A, request func(milliseconds int64) any) (*A, error) {
	timeout := api.MaxDeviceTime
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		timeout = min(timeout, left-min(parting, left/partingShare))
	}
	ctx, cancel := context.WithTimeout(ctx, api.MaxDeviceTime+parting)
	defer cancel()
	body, err := json.Marshal(request(max(1, timeout.Milliseconds())))
	if err != nil {
		return nil, err
	}
	posted, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// Without a body to get again nothing is ever sent twice.
	posted.GetBody = nil
	posted.Header.Set("Content-Type", "application/json")
	response, err := c.devices.Do(posted)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, failureOf(response)
	}
	// To its end, or else the connection is not kept.
	if err := peer.ReadAnswer(response.Body, maxMessage, answer); err != nil {
		return nil, fmt.Errorf("the probe's answer: %w", err)
	}
	return answer, nil
}
