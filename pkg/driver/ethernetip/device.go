package ethernetip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// attributeStatus is the Identity object's status.
const attributeStatus = 5

// device is one module's view of an endpoint.
type device struct {
	endpoint     *endpoint
	timeout      time.Duration
	identityOnly bool
	declared     []driver.Channel
	release      func()
	closeOnce    sync.Once
}

// checkChannel tells whether a channel can be read at all.
func checkChannel(channel driver.Channel) error {
	if _, err := parseAddress(channel.Address); err != nil {
		return channelError(channel, err)
	}
	if channel.WordOrder != "" {
		return channelError(channel, driver.ConfigurationError("EtherNet/IP has no word order"))
	}
	return nil
}

// Check implements driver.Device: it reads the first declared channel, then the Identity object's status; or identifies
// the device if nothing else may be asked of it. Both reads together have one request timeout.
func (d *device) Check(ctx context.Context) (driver.Answer, error) {
	if d.identityOnly {
		id, err := d.endpoint.listIdentity(ctx, d)
		if err != nil {
			return driver.Answer{}, err
		}
		return health(id.status), nil
	}
	if len(d.declared) == 0 {
		return d.checkStatus(ctx)
	}
	started := time.Now()
	channel := d.declared[0]
	// Of an array the first element is enough.
	channel.Count = 0
	_, err := driver.ReadOne(ctx, d, channel)
	refused, ok := errors.AsType[*driver.Error](err)
	if err != nil && (!ok || !refused.Answered) {
		return driver.Answer{}, err
	}
	// The device answered; what comes now only adds to that.
	ctx, cancel := context.WithDeadline(ctx, started.Add(d.timeout))
	defer cancel()
	answer, statusErr := d.checkStatus(ctx)
	if statusErr != nil {
		answer = driver.Answer{Health: driver.HealthNormal}
	}
	if err != nil && answer.Reason == "" {
		answer.Reason = refused.Reason
		answer.Message = fmt.Sprintf("the device answers, and %s cannot be read: %v", channel.Address, refused.Err)
	}
	return answer, nil
}

// checkStatus reads the Identity object's status.
func (d *device) checkStatus(ctx context.Context) (driver.Answer, error) {
	path := logical(object(classIdentity, 1), segmentAttribute, attributeStatus)
	var answer driver.Answer
	err := d.endpoint.request(ctx, d, request{
		service: serviceGetAttributeSingle,
		path:    path,
		parse: func(data []byte, _ bool) error {
			if len(data) != 2 {
				return fmt.Errorf("%w: an identity status of %d bytes", errMalformedReply, len(data))
			}
			answer = health(binary.LittleEndian.Uint16(data))
			return nil
		},
	})
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Answered {
		// Any answer proves that it is there.
		return driver.Answer{Health: driver.HealthNormal}, nil
	}
	return answer, err
}

// Identify implements driver.Device: by the Identity object at the end of the route, or by ListIdentity.
func (d *device) Identify(ctx context.Context) (driver.Identity, error) {
	if !d.identityOnly {
		var id identity
		err := d.endpoint.request(ctx, d, request{
			service: serviceGetAttributesAll,
			path:    object(classIdentity, 1),
			parse: func(data []byte, _ bool) (err error) {
				id, err = parseIdentity(data)
				return err
			},
		})
		if err == nil {
			return id.nameplate(), nil
		}
		e, ok := errors.AsType[*driver.Error](err)
		if !ok || !e.Answered || len(d.endpoint.route) > 0 {
			// At the end of a route is another device than at the endpoint.
			return driver.Identity{}, err
		}
	}
	id, err := d.endpoint.listIdentity(ctx, d)
	if err != nil {
		return driver.Identity{}, err
	}
	return id.nameplate(), nil
}

// read reads one element.
func (d *device) read(ctx context.Context, address tagAddress) (reading, error) {
	if d.identityOnly {
		return reading{}, identityAlone()
	}
	r := &tagRead{path: address.path, attribute: address.attribute}
	if err := d.readTags(ctx, []*tagRead{r}); err != nil {
		return reading{}, err
	}
	if r.refused != nil {
		return reading{}, r.refused
	}
	return r.reading, nil
}

// Write implements driver.Device. The tag is read first: a write must name the device's own type, and what a channel is
// declared as may be wider. A bit of a number is changed by the device itself, so that its neighbours keep what they
// have just become.
func (d *device) Write(ctx context.Context, channel driver.Channel, value any) error {
	if channel.Count > 1 {
		return channel.Array()
	}
	address, err := parseAddress(channel.Address)
	if err != nil {
		return channelError(channel, err)
	}
	if address.attribute && (address.bit != noBit || address.offset != wholeAttribute) {
		return &driver.Error{Reason: driver.ReasonNotSupported, Err: fmt.Errorf("channel %q: a part of an attribute is not written", channel.Name)}
	}
	r, err := d.read(ctx, address)
	if err != nil {
		return err
	}
	if r, err = address.within(r, channel.DataType); err != nil {
		return err
	}
	if _, err := address.value(r, channel.DataType); err != nil {
		return err
	}
	q := request{service: serviceWriteTag, path: address.path, writes: true}
	if address.bit != noBit {
		on, ok := value.(bool)
		if !ok {
			return channelError(channel, driver.ConfigurationError("a bit cannot hold %T", value))
		}
		q.service, q.data = serviceReadModifyWrite, masks(len(r.data), address.bit, on)
	} else {
		raw, err := r.encode(value)
		if err != nil {
			return channelError(channel, err)
		}
		q.data = append(binary.LittleEndian.AppendUint16(r.head(), 1), raw...)
		if address.attribute {
			q.service, q.data = serviceSetAttributeSingle, raw
		}
	}
	return d.endpoint.request(ctx, d, q)
}

// masks is the data of a Read Modify Write of one bit: the size, what is or-ed, what is and-ed.
func masks(size, bit int, on bool) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(size))
	or, and := make([]byte, size), make([]byte, size)
	for i := range and {
		and[i] = 0xFF
	}
	if on {
		or[bit/8] = 1 << (bit % 8)
	} else {
		and[bit/8] &^= 1 << (bit % 8)
	}
	return append(append(b, or...), and...)
}

// Close implements driver.Device.
func (d *device) Close() error {
	d.closeOnce.Do(d.release)
	return nil
}

func identityAlone() *driver.Error {
	return &driver.Error{Reason: driver.ReasonNotSupported, Err: errors.New("the module asks for the device's identity alone (identityOnly)")}
}

func channelError(channel driver.Channel, err error) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf("channel %q: %w", channel.Name, err)}
}
