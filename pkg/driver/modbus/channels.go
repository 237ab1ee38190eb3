package modbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxBits and maxRegisters are what one read may ask for.
	maxBits      = 2000
	maxRegisters = 125
	// maxTurns bounds how often one block waits anew for its turn on a busy line.
	maxTurns = 3
	// maxSilences in a row end the verification: one channel may be what the device never answers, several are the link.
	maxSilences = 3
	// verifyTime bounds the verification, or half of what the context leaves if that is less: a long map behind a slow
	// gateway is listed all the same, its rest unverified.
	verifyTime = 30 * time.Second
)

// declaredChannel is a channel of the configuration, and how one element of it is read.
type declaredChannel struct {
	driver.Channel
	request request
}

// Channels implements driver.Device: the declared channels in their order. Modbus has nothing to browse, and the address
// space is never scanned: there are devices that stop at the first register they do not have.
func (d *device) Channels(ctx context.Context, limit int) (driver.ChannelList, error) {
	if limit <= 0 || limit > driver.MaxChannels {
		limit = driver.MaxChannels
	}
	list := driver.ChannelList{Items: make([]driver.ChannelInfo, 0, min(limit, len(d.channels)))}
	until := time.Now().Add(verifyTime)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline)/2 < verifyTime {
		until = time.Now().Add(time.Until(deadline) / 2)
	}
	if d.verify {
		defer d.endpoint.giveBack(d)
	}
	silences := 0
	for _, c := range d.channels {
		if len(list.Items) == limit {
			list.Truncated = true
			break
		}
		info := c.info()
		if d.verify && c.Access != driver.AccessWrite && (len(list.Items) == 0 || time.Now().Before(until)) {
			err := d.verifyChannel(ctx, c)
			failure, ok := errors.AsType[*driver.Error](err)
			silent := ok && failure.Reason == driver.ReasonTimeout && ctx.Err() == nil
			switch {
			case err == nil:
				silences = 0
			case ok && failure.Answered:
				silences = 0
				info.Problem, info.Message = failure.Reason, fmt.Sprintf("the device refuses to read it: %v", failure.Err)
			case silent && silences+1 < maxSilences:
				silences++
				info.Problem, info.Message = failure.Reason, "the device does not answer when it is read"
			default:
				return driver.ChannelList{}, err
			}
		}
		list.Items = append(list.Items, info)
	}
	if silences > 0 && silences == len(list.Items) {
		// Nothing else answered: that is the link, not the channels.
		return driver.ChannelList{}, &driver.Error{Reason: driver.ReasonTimeout, Err: fmt.Errorf("unit %d at %s answers for none of its channels", d.unit.id, d.endpoint.address)}
	}
	return list, nil
}

// info is what the specification says of a channel.
func (c declaredChannel) info() driver.ChannelInfo {
	info := driver.ChannelInfo{
		Name: c.Name, Address: c.Address, DataType: c.request.dataType, Count: max(1, c.Count),
		Access: c.Access, Declared: true,
	}
	writable := writableTable(c.request.address.Table)
	switch {
	case info.Access == "" && writable:
		info.Access = driver.AccessReadWrite
	case info.Access == "":
		info.Access = driver.AccessRead
	case info.Access != driver.AccessRead && !writable:
		info.Problem = driver.ReasonConfigurationError
		info.Message = fmt.Sprintf("it is declared as %s, and the %s table cannot be written", info.Access, c.request.address.Table)
	}
	return info
}

// verifyChannel reads all of a channel once, in as many requests as that takes. What it reads proves nothing about the device
// that its own checks would not.
func (d *device) verifyChannel(ctx context.Context, c declaredChannel) error {
	r := c.request
	left, most := int(r.quantity)*max(1, c.Count), maxRegisters
	if r.bits {
		most = maxBits
	}
	for left > 0 {
		n := min(left, most)
		r.quantity, r.size = uint16(n), 2*n
		if r.bits {
			r.size = (n + 7) / 8
		}
		var err error
		var took time.Duration
		for range maxTurns {
			started := time.Now()
			_, err = d.fetch(ctx, r, purpose{more: true, optional: true})
			took = time.Since(started)
			if err == nil || driver.ReasonOf(err) != driver.ReasonNotMeasured {
				break
			}
		}
		// As much time for others as this took: a serial bus behind a gateway may have little to spare.
		if err == nil {
			err = rest(ctx, took)
		}
		if err != nil {
			return err
		}
		r.address.Offset += uint16(n)
		left -= n
	}
	return nil
}

// rest waits, unless the context ends first.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return driver.LinkError(ctx.Err(), "resting between two reads")
	}
}
