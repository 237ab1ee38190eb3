package modbus

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxGap is how many elements that nobody asked for are read along, to ask once instead of twice.
	maxGap = 16
	// splitFor is how long what a device refused to read in one request is read in two: its program may change, and a failure of
	// all of it pass.
	splitFor = 10 * time.Minute
	// maxRememberedRuns bounds what is remembered of one device.
	maxRememberedRuns = 4096
	// maxBusyPause is how long a device that says that it is busy is left alone before it is asked once more.
	maxBusyPause = 200 * time.Millisecond
)

// span is a run of elements of one table, and the channels that have their value there.
type span struct {
	table    Table
	function byte
	bits     bool
	first, n int
	channels []wanted
}

// wanted is a channel of a Read by its index, and how its value is decoded.
type wanted struct {
	index   int
	request request
}

// Read implements driver.Device: channels that are near each other in a table are read by one request. Where the device refuses that,
// it is read in two, down to single channels, and this is remembered for a while.
func (d *device) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	samples := make([]driver.Sample, len(channels))
	blocks := d.blocks(spans(d, channels, samples), time.Now())
	for i, block := range blocks {
		if err := d.readBlock(ctx, block, samples, i < len(blocks)-1); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// spans are the runs of elements that the channels need, sorted; what cannot be read is told in samples.
func spans(d *device, channels []driver.Channel, samples []driver.Sample) []span {
	indexes := map[run]int{}
	var all []span
	for i, channel := range channels {
		r, err := d.request(channel)
		switch {
		case err != nil:
			refused, ok := errors.AsType[*driver.Error](err)
			if !ok {
				refused = channelError(channel, err)
			}
			samples[i] = driver.Refused(refused)
			continue
		case r.dataType == driver.String:
			samples[i] = driver.Refused(channelError(channel, driver.ConfigurationError("texts are not read over Modbus")))
			continue
		case channel.Count > 1:
			samples[i] = driver.Refused(channel.Array())
			continue
		}
		at := runOf(r)
		index, ok := indexes[at]
		if !ok {
			index = len(all)
			indexes[at] = index
			all = append(all, span{table: r.address.Table, function: r.function, bits: r.bits, first: at.first, n: at.n})
		}
		all[index].channels = append(all[index].channels, wanted{i, r})
	}
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.function, b.function), cmp.Compare(a.first, b.first), cmp.Compare(a.n, b.n))
	})
	return all
}

// blocks joins neighbours as far as one request goes.
func (d *device) blocks(all []span, now time.Time) [][]span {
	var blocks [][]span
	begin, end := 0, 0
	for i, s := range all {
		head := all[begin]
		most := maxRegisters
		if s.bits {
			most = maxBits
		}
		joined := i > begin && s.function == head.function && s.first <= end+maxGap &&
			max(end, s.first+s.n)-head.first <= most && !d.joins.apart(s, now)
		if i > begin && !joined {
			blocks = append(blocks, all[begin:i])
			begin, end = i, 0
		}
		end = max(end, s.first+s.n)
	}
	if begin < len(all) {
		blocks = append(blocks, all[begin:])
	}
	return blocks
}

// whole is the request that reads a block.
func whole(block []span) request {
	first, end := block[0].first, 0
	for _, s := range block {
		end = max(end, s.first+s.n)
	}
	n := end - first
	r := request{
		address:  Address{Table: block[0].table, Offset: uint16(first)},
		function: block[0].function, bits: block[0].bits, quantity: uint16(n), size: 2 * n,
	}
	if r.bits {
		r.size = (n + 7) / 8
	}
	return r
}

// readBlock reads a block by one request, or by several where that is refused. Its error is of the link.
func (d *device) readBlock(ctx context.Context, block []span, samples []driver.Sample, more bool) error {
	r := whole(block)
	raw, err := d.fetch(ctx, r, purpose{more: more})
	if driver.ReasonOf(err) == driver.ReasonDeviceBusy && rest(ctx, min(d.timeout/4, maxBusyPause)) == nil {
		raw, err = d.fetch(ctx, r, purpose{more: more})
	}
	refused, ok := errors.AsType[*driver.Error](err)
	switch {
	case err == nil:
		if len(block) > 1 {
			d.joins.prove(r)
		}
		for _, s := range block {
			for _, w := range s.channels {
				samples[w.index] = driver.Sample{Value: w.request.value(part(raw, s, block[0].first))}
			}
		}
		return nil
	case !ok || !refused.Answered:
		if !d.tooMuch(ctx, block, r, err) {
			return err
		}
	case len(block) == 1 || refused.Reason == driver.ReasonDeviceBusy || refused.Reason == driver.ReasonNotSupported:
		// Neither of the two depends on what of the table is read.
		for _, s := range block {
			for _, w := range s.channels {
				samples[w.index] = driver.Refused(refused)
			}
		}
		return nil
	}
	at := middle(block)
	d.joins.split(block[at], time.Now())
	if err := d.readBlock(ctx, block[:at], samples, true); err != nil {
		return err
	}
	return d.readBlock(ctx, block[at:], samples, more)
}

// tooMuch tells of a block that was met with silence whether the device answers for the first channel of it: there are devices that
// do not answer at all where others refuse. What the device did answer once is not in doubt; then silence is the link.
func (d *device) tooMuch(ctx context.Context, block []span, r request, err error) bool {
	if len(block) == 1 || driver.ReasonOf(err) != driver.ReasonTimeout || ctx.Err() != nil || d.joins.proven(r) {
		return false
	}
	_, err = d.fetch(ctx, whole(block[:1]), purpose{more: true})
	refused, ok := errors.AsType[*driver.Error](err)
	return err == nil || ok && refused.Answered
}

// part is what a block's reply has of a span, as if the span had been read alone.
func part(raw []byte, s span, first int) []byte {
	at := s.first - first
	if s.bits {
		return []byte{raw[at/8] >> (at % 8) & 1}
	}
	return raw[2*at : 2*(at+s.n)]
}

// middle is where a block is split: at its widest gap, since what nobody asked for may be what is refused, or in halves.
func middle(block []span) int {
	at, widest := len(block)/2, 0
	end := block[0].first + block[0].n
	for i, s := range block[1:] {
		if gap := s.first - end; gap > widest {
			at, widest = i+1, gap
		}
		end = max(end, s.first+s.n)
	}
	return at
}

// joins is what a device lets be read by one request, as far as that is known.
type joins struct {
	mu sync.Mutex
	// splits are the places across which nothing is read, and since when.
	splits map[place]time.Time
	// whole are the blocks that were read once.
	whole map[run]struct{}
}

type place struct {
	function byte
	first    int
}

type run struct {
	place
	n int
}

// apart tells whether there is a split before s.
func (j *joins) apart(s span, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	since, ok := j.splits[place{s.function, s.first}]
	return ok && now.Sub(since) < splitFor
}

// split notes a split before s.
func (j *joins) split(s span, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.splits == nil || len(j.splits) >= maxRememberedRuns {
		j.splits = map[place]time.Time{}
	}
	j.splits[place{s.function, s.first}] = now
}

// prove notes that a block was read.
func (j *joins) prove(r request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.whole == nil || len(j.whole) >= maxRememberedRuns {
		j.whole = map[run]struct{}{}
	}
	j.whole[runOf(r)] = struct{}{}
}

// proven tells whether a block was read once.
func (j *joins) proven(r request) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.whole[runOf(r)]
	return ok
}

func runOf(r request) run {
	return run{place{r.function, int(r.address.Offset)}, int(r.quantity)}
}
