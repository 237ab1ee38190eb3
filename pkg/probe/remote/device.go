// Package remote is the devices that a probe supervises, used through its API: for a Unit's runtime, where a device allows
// fewer connections than it has clients (P-13, P-14).
package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

// Probe is a probe at one address. Its devices share what connections it needs.
type Probe struct {
	address string
	client  *probeclient.Client
	// name tells the writes of this Probe from those of any other.
	name string
	// sequence of the last write, of whatever device.
	sequence atomic.Uint64
}

// New returns the probe at address (host:port) that client speaks with. The name is unlike any other, that of an earlier start
// of the program included: a random one will do.
func New(address string, client *probeclient.Client, name string) *Probe {
	return &Probe{address: address, client: client, name: name}
}

// Open returns the device of a module, named by its uid.
func (p *Probe) Open(uid string) driver.Device {
	d := &device{probe: p, uid: uid, writing: make(chan struct{}, 1)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Close lets go of the connections.
func (p *Probe) Close() { p.client.Close() }

// device is one module's device behind its probe.
type device struct {
	probe *Probe
	uid   string
	// writing holds one element while a write is under way: writes are numbered in the order in which they are sent.
	writing chan struct{}

	ctx     context.Context
	cancel  context.CancelFunc
	closing sync.Once
	mu      sync.RWMutex
}

var _ driver.Device = &device{}

// Check implements driver.Device: the probe reads the device now.
func (d *device) Check(ctx context.Context) (driver.Answer, error) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	answer, err := d.probe.client.Check(ctx, d.uid)
	if err != nil {
		return driver.Answer{}, d.failure(err)
	}
	if answer.Error != nil {
		return driver.Answer{}, answer.Error.Driver()
	}
	return driver.Answer{Reason: answer.Reason, Message: answer.Message, Health: answer.Health}, nil
}

// Identify implements driver.Device: the probe has asked for it already, and tells it with the module's state.
func (d *device) Identify(context.Context) (driver.Identity, error) {
	return driver.Identity{}, &driver.Error{Reason: driver.ReasonNotSupported, Err: errors.New("the module's state at its probe has the identity")}
}

// Channels implements driver.Device: the probe has found them already, and tells them.
func (d *device) Channels(context.Context, int) (driver.ChannelList, error) {
	return driver.ChannelList{}, &driver.Error{Reason: driver.ReasonNotSupported, Err: errors.New("the probe lists the channels that it has found")}
}

// Read implements driver.Device.
func (d *device) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	samples := make([]driver.Sample, 0, len(channels))
	for len(samples) < len(channels) {
		part := channels[len(samples):]
		part = part[:min(len(part), api.MaxDeviceChannels)]
		asked := make([]api.Channel, len(part))
		for i, c := range part {
			asked[i] = api.ChannelOf(c)
		}
		answer, err := d.probe.client.Read(ctx, d.uid, asked)
		if err != nil {
			return nil, d.failure(err)
		}
		if answer.Error != nil {
			return nil, answer.Error.Driver()
		}
		for _, told := range answer.Samples {
			sample, err := told.Driver()
			if err != nil {
				return nil, &driver.Error{Reason: driver.ReasonProtocolError, Err: fmt.Errorf("the probe at %s: %w", d.probe.address, err)}
			}
			samples = append(samples, sample)
		}
	}
	return samples, nil
}

// Write implements driver.Device. One write is under way at a time. When the caller gives up the probe may still be about to do it; but
// it does not do it any more once it has the next one, which the caller may send at once.
func (d *device) Write(ctx context.Context, channel driver.Channel, value any) error {
	told, ok := api.ValueOf(value)
	if !ok {
		return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf("channel %q: a %T cannot be written", channel.Name, value)}
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	select {
	case d.writing <- struct{}{}:
		defer func() { <-d.writing }()
	case <-ctx.Done():
		return &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("not sent: the writes before it took all of its time: %w", ctx.Err())}
	}
	answer, err := d.probe.client.Write(ctx, d.uid, api.WriteRequest{
		Client: d.probe.name, Sequence: d.probe.sequence.Add(1), Channel: api.ChannelOf(channel), Value: told,
	})
	if err != nil {
		return d.failure(err)
	}
	if answer.Error != nil {
		return answer.Error.Driver()
	}
	return nil
}

// Close implements driver.Device; calls under way end.
func (d *device) Close() error {
	d.closing.Do(func() {
		d.cancel()
		// Wait for them.
		d.mu.Lock()
		defer d.mu.Unlock()
	})
	return nil
}

// bounded is a context for a call, which ends with the device too.
func (d *device) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	d.mu.RLock()
	ctx, cancel := context.WithTimeout(ctx, api.MaxDeviceTime)
	stop := context.AfterFunc(d.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		d.mu.RUnlock()
	}
}

// failure is an error of speaking with the probe. The text stays the same while the cause does.
func (d *device) failure(err error) *driver.Error {
	where := "the probe at " + d.probe.address
	if _, ok := errors.AsType[*peer.ConnectError](err); ok {
		return &driver.Error{Reason: driver.ReasonProbeUnavailable, Err: driver.LinkError(err, "%s cannot be reached", where).Err}
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		switch refused.Reason {
		case api.ErrorBusy:
			return &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("%s: %s", where, refused.Message)}
		case api.ErrorInvalid:
			return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf("%s: %s", where, refused.Message)}
		default:
			return &driver.Error{Reason: driver.ReasonProbeUnavailable, Err: fmt.Errorf("%s: %s", where, refused.Message)}
		}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return driver.LinkError(err, "%s", where)
}
