package opcua

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// readBatch is how many channels go into one Read of a session. Many devices may share it.
type readBatch struct {
	mu      sync.Mutex
	learned bool
	batch   batch
}

// channelRead is a channel of a Read by its index.
type channelRead struct {
	index   int
	address address
}

// Read implements driver.Device: by as few requests as the server allows, each within the device's timeout. The status of a value and the
// time at its source are the server's own.
func (d *device) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	samples := make([]driver.Sample, len(channels))
	var left []channelRead
	for i, channel := range channels {
		a, err := parseAddress(channel.Address)
		switch {
		case channel.Count > 1:
			samples[i] = driver.Refused(channel.Array())
		case err != nil:
			samples[i] = driver.Refused(channelError(channel, err))
		default:
			left = append(left, channelRead{i, a})
		}
	}
	for len(left) > 0 {
		taken := 0
		err := d.connection.do(ctx, d.timeout, true, func(ctx context.Context, s *session) (err error) {
			taken, err = d.readSome(ctx, s, channels, left, samples)
			return err
		})
		if err != nil {
			if failure, ok := errors.AsType[*driver.Error](err); ok && failure.Answered {
				// The server refuses to read at all, and says why.
				for _, c := range left {
					samples[c.index] = driver.Refused(ofChannel(channels[c.index], failure))
				}
				return samples, nil
			}
			return nil, err
		}
		left = left[taken:]
	}
	return samples, nil
}

// readSome reads as many of the channels as go into one request, and says how many these are.
func (d *device) readSome(ctx context.Context, s *session, channels []driver.Channel, left []channelRead, samples []driver.Sample) (taken int, err error) {
	if err := s.learnReads(ctx, len(left), d.timeout); err != nil {
		return 0, err
	}
	for {
		s.reads.mu.Lock()
		n := min(len(left), s.reads.batch.size)
		s.reads.mu.Unlock()
		asked := left[:n]
		attributes := make([]attribute, 0, n)
		resolved := make([]int, 0, n)
		for _, c := range asked {
			node, err := c.address.resolve(s.namespaces)
			if err != nil {
				samples[c.index] = driver.Refused(ofChannel(channels[c.index], answered(driver.ReasonConfigurationError, "the server has no namespace %q", c.address.uri)))
				continue
			}
			attributes = append(attributes, attribute{node: node, id: ua.AttributeIDValue})
			resolved = append(resolved, c.index)
		}
		if len(attributes) == 0 {
			// That none of them is there is told by a server that is.
			attributes = append(attributes, attribute{node: numeric(nodeServerState), id: ua.AttributeIDValue})
		}
		started := time.Now()
		values, err := s.read(ctx, attributes, d.timeout)
		if !s.reads.settle(len(attributes), time.Since(started), err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for i, index := range resolved {
			samples[index] = values[i].driver(channels[index])
		}
		return n, nil
	}
}

// learnReads asks once how many nodes the server lets be read at once, before it is first asked for several.
func (s *session) learnReads(ctx context.Context, n int, timeout time.Duration) error {
	s.reads.mu.Lock()
	defer s.reads.mu.Unlock()
	if s.reads.learned {
		return nil
	}
	if s.reads.batch = newBatch(firstRead, 0); n == 1 {
		return nil
	}
	limit, err := s.read(ctx, []attribute{{node: numeric(nodeMaxNodesPerRead), id: ua.AttributeIDValue}}, timeout)
	if err != nil && !isStatus(err) {
		return err
	}
	if err == nil {
		switch n := limit[0].value.(type) {
		case uint32:
			s.reads.batch = newBatch(firstRead, n)
		case uint16:
			s.reads.batch = newBatch(firstRead, uint32(n))
		}
	}
	s.reads.learned = true
	return nil
}

// settle learns from how a request of n operations ended; false says that fewer should be asked for at once.
func (b *readBatch) settle(n int, took time.Duration, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.batch.answered(took)
	case isStatus(err) && tooLarge(err):
		return !b.batch.refused(n)
	case errors.Is(err, context.DeadlineExceeded):
		b.batch.answered(took + slow)
	}
	return true
}

// driver is a value that was read as a channel's.
func (s sample) driver(channel driver.Channel) driver.Sample {
	told := driver.Sample{Status: driver.StatusCode(s.status), SourceTime: s.source}
	if s.bad() {
		told.Err = ofChannel(channel, statusError(s.status))
		if s.typeID == 0 {
			return told
		}
	}
	value, err := valueOf(s.variant, channel.DataType)
	if err == nil {
		told.Value = value
		return told
	}
	if told.Err == nil {
		failure, ok := errors.AsType[*driver.Error](err)
		if !ok {
			failure = answered(driver.ReasonDeviceFailure, "%w", err)
		}
		told.Err = ofChannel(channel, failure)
		told.Status = driver.StatusOf(failure)
	}
	return told
}
