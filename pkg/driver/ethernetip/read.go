package ethernetip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxMultiple is how many tags one packet asks for at most.
	maxMultiple = 200
	// singlyFor is how long a device that refused packets of several services is asked for one tag at a time, or for fewer.
	singlyFor = 10 * time.Minute
	// packetHead is what a packet has besides its services: the connection's sequence count, the service and its path, or the status of
	// a reply, and the number of services. Each service has an offset of two bytes, a request of its own head and one element's
	// count, or a reply of its own head.
	packetHead  = 2 + 6 + 2
	offsetSize  = 2
	requestHead = 2 + 2
	replyHead   = 4
	// usualReply and textReply are how long a reply's data is taken to be until it is known: a type and a number; a type, a structure's
	// handle and a STRING.
	usualReply = 2 + 8
	textReply  = 4 + 88
	// maxSizes are remembered of one endpoint.
	maxSizes = 16384
)

// tagRead is one place in the controller that is read, for whatever channels have their value there.
type tagRead struct {
	path      []byte
	text      bool
	attribute bool
	reading   reading
	refused   *driver.Error
}

// request is what reads it: one element of a tag, or an attribute.
func (r *tagRead) request() request {
	if r.attribute {
		return request{service: serviceGetAttributeSingle, path: r.path}
	}
	return request{service: serviceReadTag, path: r.path, data: []byte{1, 0}}
}

// Read implements driver.Device: by packets of as many tags as the connection takes, or one at a time where the device refuses that.
// Without a data type the device's own is taken.
func (d *device) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	samples := make([]driver.Sample, len(channels))
	addresses := make([]tagAddress, len(channels))
	reads := make([]*tagRead, len(channels))
	byPath := map[string]*tagRead{}
	var all []*tagRead
	for i, channel := range channels {
		address, err := parseAddress(channel.Address)
		switch {
		case channel.Count > 1:
			samples[i] = driver.Refused(channel.Array())
		case err != nil:
			samples[i] = driver.Refused(channelError(channel, err))
		case d.identityOnly:
			samples[i] = driver.Refused(identityAlone())
		default:
			r := byPath[string(address.path)]
			if r == nil {
				r = &tagRead{path: address.path, attribute: address.attribute}
				byPath[string(address.path)] = r
				all = append(all, r)
			}
			r.text = r.text || channel.DataType == driver.String
			addresses[i], reads[i] = address, r
		}
	}
	if err := d.readTags(ctx, all); err != nil {
		return nil, err
	}
	for i, r := range reads {
		if r == nil {
			continue
		}
		if r.refused != nil {
			samples[i] = driver.Refused(r.refused)
			continue
		}
		value, err := addresses[i].value(r.reading, channels[i].DataType)
		if failure, ok := errors.AsType[*driver.Error](err); ok {
			samples[i] = driver.Refused(failure)
			continue
		}
		samples[i].Value = value
	}
	return samples, nil
}

// readTags reads all tags; its error is of the link.
func (d *device) readTags(ctx context.Context, left []*tagRead) error {
	for len(left) > 0 {
		var taken int
		var again []*tagRead
		err := d.endpoint.turn(ctx, d, question{
			layer: overCIP,
			ask: func(ctx context.Context, deadline time.Time) (err error) {
				taken, again, err = d.endpoint.readSome(ctx, left, deadline)
				return err
			},
		})
		if err != nil {
			return err
		}
		left = append(left[taken:len(left):len(left)], again...)
	}
	return nil
}

// readSome reads the first of the tags by one packet, and says how many they are and which of them must be read again, alone.
func (e *endpoint) readSome(ctx context.Context, left []*tagRead, deadline time.Time) (taken int, again []*tagRead, err error) {
	n := e.fitting(left, time.Now())
	if n == 1 {
		return 1, nil, e.readAlone(ctx, left[0], deadline)
	}
	var requests [][]byte
	for _, r := range left[:n] {
		requests = append(requests, r.request().encode())
	}
	answer, err := e.connected(ctx, request{service: serviceMultiple, path: []byte(messageRouter), data: packServices(requests)}, deadline)
	if err != nil {
		if !e.multiple {
			// There may be devices that take it amiss otherwise than by saying so.
			e.singlyUntil = time.Now().Add(singlyFor)
		}
		return 0, nil, err
	}
	switch answer.status.general {
	case 0, statusEmbedded:
		e.multiple = true
	case statusPartialTransfer, statusReplyTooLarge, statusNoResources, statusTooMuchData:
		e.most, e.mostUntil = max(1, n/2), time.Now().Add(singlyFor)
		return 0, nil, nil
	default:
		if refused := answer.status.requestError(); !refused.Answered {
			return 0, nil, refused
		}
		e.singlyUntil = time.Now().Add(singlyFor)
		return 0, nil, nil
	}
	replies, err := unpackServices(answer.data, n)
	if err != nil {
		return 0, nil, err
	}
	for i, r := range left[:n] {
		part, err := parseReply(r.request().service, replies[i])
		if err != nil {
			return 0, nil, err
		}
		if part.status.general == statusPartialTransfer || part.status.general == statusReplyTooLarge {
			e.learn(r.path, largeSize)
			again = append(again, r)
			continue
		}
		if err := e.take(r, part); err != nil {
			return 0, nil, err
		}
	}
	return n, again, nil
}

// readAlone reads one tag.
func (e *endpoint) readAlone(ctx context.Context, r *tagRead, deadline time.Time) error {
	answer, err := e.connected(ctx, r.request(), deadline)
	if err != nil {
		return err
	}
	return e.take(r, answer)
}

// take keeps what came of a tag. Its error is of the link.
func (e *endpoint) take(r *tagRead, answer reply) (err error) {
	r.refused = nil
	switch {
	case answer.status.general == statusPartialTransfer:
		r.refused = tooLarge()
		return nil
	case answer.status.general != 0:
		refused := answer.status.requestError()
		if !refused.Answered {
			return refused
		}
		r.refused = refused
		return nil
	}
	e.learn(r.path, len(answer.data))
	if r.attribute {
		r.reading = reading{data: answer.data}
		return nil
	}
	r.reading, err = parseReading(answer.data)
	return err
}

// fitting is how many of the tags one packet may ask for.
func (e *endpoint) fitting(left []*tagRead, now time.Time) int {
	if now.Before(e.singlyUntil) {
		return 1
	}
	most := min(len(left), maxMultiple)
	if now.Before(e.mostUntil) {
		most = min(most, e.most)
	}
	asked, answered := packetHead, packetHead
	for n, r := range left[:most] {
		asked += offsetSize + requestHead + len(r.path)
		answered += offsetSize + replyHead + e.sizeOf(r)
		if n > 0 && max(asked, answered) > e.cip.size {
			return n
		}
	}
	return most
}

// sizeOf is how long the data of a tag's reply will be.
func (e *endpoint) sizeOf(r *tagRead) int {
	if size, ok := e.sizes[string(r.path)]; ok {
		return size
	}
	if r.text {
		return textReply
	}
	return usualReply
}

// learn notes how long the data of a tag's reply is.
func (e *endpoint) learn(path []byte, size int) {
	if size <= usualReply {
		if _, ok := e.sizes[string(path)]; !ok {
			return
		}
	}
	if e.sizes == nil || len(e.sizes) >= maxSizes {
		e.sizes = map[string]int{}
	}
	e.sizes[string(path)] = size
}

func tooLarge() *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: errors.New("the value is too large for a reply; name one of its members")}
}

// packServices is the data of a Multiple Service Packet (CIP volume 1, appendix A): how many, where each begins, counted from here, and
// the requests.
func packServices(requests [][]byte) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(requests)))
	at := 2 + offsetSize*len(requests)
	for _, r := range requests {
		b = binary.LittleEndian.AppendUint16(b, uint16(at))
		at += len(r)
	}
	for _, r := range requests {
		b = append(b, r...)
	}
	return b
}

// unpackServices are the n replies of a Multiple Service Packet, each ending where the next begins.
func unpackServices(data []byte, n int) ([][]byte, error) {
	head := 2 + offsetSize*n
	if len(data) < head || int(binary.LittleEndian.Uint16(data)) != n {
		return nil, fmt.Errorf("%w: a packet of other services than were asked for", errMalformedReply)
	}
	replies := make([][]byte, n)
	end := len(data)
	for i := n - 1; i >= 0; i-- {
		begin := int(binary.LittleEndian.Uint16(data[2+offsetSize*i:]))
		if begin < head || begin > end {
			return nil, fmt.Errorf("%w: a packet whose services lie within one another", errMalformedReply)
		}
		replies[i], end = data[begin:end], begin
	}
	return replies, nil
}
