// Package simulation is a device without a network: its declared channels follow curves that are the same whenever the
// seed is, and keep what is written to them (P-13).
package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// A simulated number swings around middle by at most swing, with a period of its own between the two.
const (
	middle         = 50
	swing          = 50
	shortestPeriod = 10 * time.Second
	longestPeriod  = 2 * time.Minute
	// step is how often a value changes, so that two readers of the same second read the same.
	step = time.Second
)

// Config is one simulated device.
type Config struct {
	// Seed of the values: two devices of the same seed and channels have the same values at the same time after Start.
	Seed int64
	// Start is when the curves begin.
	Start time.Time
	// Now is the time by which they go on; nil is time.Now.
	Now func() time.Time
	// Channels are all that the device has. A channel's data type is float64 where none is declared.
	Channels []driver.Channel
}

// device is a simulated device.
type device struct {
	config   Config
	channels map[string]driver.Channel

	mu      sync.Mutex
	written map[string]any
	closed  bool
}

var _ driver.Device = &device{}

// Open checks the configuration and returns its device. The error is always a ReasonConfigurationError.
func Open(c Config) (driver.Device, error) {
	d := &device{config: c, channels: map[string]driver.Channel{}, written: map[string]any{}}
	if d.config.Now == nil {
		d.config.Now = time.Now
	}
	for _, channel := range c.Channels {
		if channel.DataType == "" {
			channel.DataType = driver.Float64
		}
		if _, ok := driver.FromBits(channel.DataType, 0); !ok && channel.DataType != driver.Bool && channel.DataType != driver.String {
			return nil, refusal(channel, "%q is no data type", channel.DataType)
		}
		if other, ok := d.channels[channel.Address]; ok && other.DataType != channel.DataType {
			return nil, refusal(channel, "channel %q has the same address and another data type", other.Name)
		}
		d.channels[channel.Address] = channel
	}
	return d, nil
}

// Check implements driver.Device: a simulated device always answers.
func (d *device) Check(ctx context.Context) (driver.Answer, error) {
	if err := d.ready(ctx); err != nil {
		return driver.Answer{}, err
	}
	return driver.Answer{Health: driver.HealthNormal}, nil
}

// Identify implements driver.Device.
func (d *device) Identify(ctx context.Context) (driver.Identity, error) {
	if err := d.ready(ctx); err != nil {
		return driver.Identity{}, err
	}
	return driver.Identity{Vendor: "fieldplane", Product: "simulation", Serial: fmt.Sprint(d.config.Seed)}, nil
}

// Channels implements driver.Device: the declared ones, in their order.
func (d *device) Channels(ctx context.Context, limit int) (driver.ChannelList, error) {
	if err := d.ready(ctx); err != nil {
		return driver.ChannelList{}, err
	}
	if limit <= 0 || limit > driver.MaxChannels {
		limit = driver.MaxChannels
	}
	list := driver.ChannelList{Truncated: len(d.config.Channels) > limit}
	for _, channel := range d.config.Channels[:min(limit, len(d.config.Channels))] {
		info := driver.ChannelInfo{
			Name: channel.Name, Address: channel.Address, DataType: d.channels[channel.Address].DataType,
			Count: max(1, channel.Count), Access: channel.Access, Declared: true,
		}
		if info.Access == "" {
			info.Access = driver.AccessReadWrite
		}
		list.Items = append(list.Items, info)
	}
	return list, nil
}

// Read implements driver.Device: what was written last, or else the channel's curve. All channels of a Read are of one moment.
func (d *device) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	now := d.config.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	samples := make([]driver.Sample, len(channels))
	for i, channel := range channels {
		declared, refused := d.find(channel)
		if channel.Count > 1 {
			refused = channel.Array()
		}
		if refused != nil {
			samples[i] = driver.Refused(refused)
			continue
		}
		value, ok := d.written[declared.Address]
		if !ok {
			value = d.value(declared, now)
		}
		samples[i] = driver.Sample{Value: value, SourceTime: now}
	}
	return samples, nil
}

// Write implements driver.Device.
func (d *device) Write(ctx context.Context, channel driver.Channel, value any) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	declared, refused := d.find(channel)
	if channel.Count > 1 {
		refused = channel.Array()
	}
	if refused != nil {
		return refused
	}
	if declared.Access == driver.AccessRead {
		return refusal(declared, "it is declared as %s", declared.Access)
	}
	fits := false
	switch declared.DataType {
	case driver.Bool:
		_, fits = value.(bool)
	case driver.String:
		_, fits = value.(string)
	default:
		var bits uint64
		if bits, fits = driver.ToBits(declared.DataType, value); fits {
			value, _ = driver.FromBits(declared.DataType, bits)
		}
	}
	if !fits {
		return refusal(declared, "a %s cannot hold %v", declared.DataType, value)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written[declared.Address] = value
	return nil
}

// Close implements driver.Device; what was written is forgotten.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	clear(d.written)
	return nil
}

// ready tells whether a call may go on.
func (d *device) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &driver.Error{Reason: driver.LinkReason(err), Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return &driver.Error{Reason: driver.ReasonConnectionLost, Err: fmt.Errorf("the simulated device is closed")}
	}
	return nil
}

// find is the declared channel of an address.
func (d *device) find(channel driver.Channel) (driver.Channel, *driver.Error) {
	declared, ok := d.channels[channel.Address]
	if !ok {
		return channel, refusal(channel, "the device has no %q", channel.Address)
	}
	if channel.DataType != "" && channel.DataType != declared.DataType {
		return channel, refusal(channel, "%q is a %s, not %s", channel.Address, declared.DataType, channel.DataType)
	}
	return declared, nil
}

// value is where the channel's curve is at a time.
func (d *device) value(channel driver.Channel, now time.Time) any {
	if channel.DataType == driver.String {
		return fmt.Sprintf("%s-%d", channel.Address, d.config.Seed)
	}
	hash := fnv.New64a()
	_, _ = hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(d.config.Seed)))
	_, _ = hash.Write([]byte(channel.Address))
	h := hash.Sum64()
	period := shortestPeriod + time.Duration(h>>32)*time.Millisecond%(longestPeriod-shortestPeriod)
	phase := float64(uint32(h)) / (1 << 32)
	elapsed := now.Sub(d.config.Start).Truncate(step)
	v := middle + swing*math.Sin(2*math.Pi*(phase+elapsed.Seconds()/period.Seconds()))
	switch channel.DataType {
	case driver.Bool:
		return v >= middle
	case driver.Float64:
		return v
	case driver.Float32:
		return float32(v)
	}
	n, _ := driver.FromBits(channel.DataType, uint64(math.Round(v)))
	return n
}

// refusal concerns one channel: the device is there.
func refusal(channel driver.Channel, format string, args ...any) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: fmt.Errorf("channel %q: "+format, append([]any{channel.Name}, args...)...)}
}
