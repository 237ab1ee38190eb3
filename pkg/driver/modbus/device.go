package modbus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/goburrow/modbus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// The objects of FC 43/14 that make up an identity.
const (
	objectVendorName  = 0x00
	objectProductCode = 0x01
	objectRevision    = 0x02
	objectProductName = 0x04
	objectModelName   = 0x05

	identifyBasic   = 0x01
	identifyRegular = 0x02
)

// maxFollows bounds the "more follows" loop of FC 43/14: 7 objects never need more, and a broken device may go on for ever.
const maxFollows = 8

// device is one unit id behind an endpoint.
type device struct {
	endpoint       *endpoint
	unit           *unit
	timeout        time.Duration
	wordOrder      WordOrder
	addressing     Addressing
	closeAfterPoll bool
	// probe is what Check reads; declared says that the user named it.
	probe     request
	declared  bool
	channels  []declaredChannel
	verify    bool
	joins     joins
	release   func()
	closeOnce sync.Once
}

// request is one read, ready to be sent.
type request struct {
	address  Address
	function byte
	quantity uint16
	size     int
	// bits: the table holds bits, not registers.
	bits     bool
	dataType driver.DataType
	order    WordOrder
}

// Check implements driver.Device: it reads the first declared channel, or holding register 0.
func (d *device) Check(ctx context.Context) (driver.Answer, error) {
	_, err := d.read(ctx, d.probe)
	if err == nil {
		return driver.Answer{Health: driver.HealthNormal}, nil
	}
	failure, ok := errors.AsType[*driver.Error](err)
	if !ok || !failure.Answered {
		return driver.Answer{}, err
	}
	if !d.declared && failure.Reason != driver.ReasonDeviceFailure {
		// Nobody said that the device has a holding register 0.
		return driver.Answer{Health: driver.HealthNormal}, nil
	}
	// An exception proves that the device answered; that one channel is Bad.
	return driver.Answer{
		Reason:  failure.Reason,
		Message: fmt.Sprintf("the device answers, and refuses to read %s: %v", d.probe.address, failure.Err),
		Health:  driver.HealthNormal,
	}, nil
}

// Identify implements driver.Device by FC 43/14. The Modbus nameplate has no serial number.
func (d *device) Identify(ctx context.Context) (driver.Identity, error) {
	objects := map[byte]string{}
	conformity, err := d.identify(ctx, identifyBasic, objects)
	if err != nil {
		return driver.Identity{}, err
	}
	if conformity&0x0F >= identifyRegular {
		// The names are welcome, and the basic objects are enough.
		_, _ = d.identify(ctx, identifyRegular, objects)
	}
	id := driver.Identity{Vendor: objects[objectVendorName], Revision: objects[objectRevision]}
	for _, o := range []byte{objectProductName, objectModelName, objectProductCode} {
		if id.Product == "" {
			id.Product = objects[o]
		}
	}
	return id, nil
}

// identify collects the objects of one category.
func (d *device) identify(ctx context.Context, category byte, objects map[byte]string) (conformity byte, err error) {
	var next byte
	for range maxFollows {
		var reply identification
		err := d.endpoint.exchange(ctx, d, query{
			pdu: modbus.ProtocolDataUnit{
				FunctionCode: functionEncapsulated,
				Data:         []byte{meiDeviceIdentification, category, next},
			},
			parse: func(data []byte) (err error) {
				reply, err = parseIdentification(data)
				return err
			},
			optional: true,
		})
		if err != nil {
			return 0, err
		}
		conformity = reply.conformity
		maps.Copy(objects, reply.objects)
		// An object id that does not grow would ask for the same again.
		if !reply.more || reply.next <= next {
			break
		}
		next = reply.next
	}
	return conformity, nil
}

// Close implements driver.Device.
func (d *device) Close() error {
	d.closeOnce.Do(d.release)
	return nil
}

// request prepares the read of a channel.
func (d *device) request(channel driver.Channel) (request, error) {
	address, err := ParseAddress(channel.Address, d.addressing)
	if err != nil {
		return request{}, channelError(channel, err)
	}
	r := request{address: address, dataType: channel.DataType, order: d.wordOrder}
	for _, t := range tables {
		if t.table == address.Table {
			r.function, r.bits = t.read, t.bits
		}
	}
	switch {
	case r.bits:
		if r.dataType == "" {
			r.dataType = driver.Bool
		}
		if r.dataType != driver.Bool {
			return request{}, channelError(channel, driver.ConfigurationError("a %s is a bool, not %s", address.Table, r.dataType))
		}
		r.quantity, r.size = 1, 1
	default:
		if r.dataType == "" {
			r.dataType = driver.Uint16
		}
		n := words(r.dataType)
		if r.dataType == driver.Bool || r.dataType == driver.String {
			// A register that is not zero is true. A text's first register is enough to see that the device answers.
			n = 1
		}
		if n == 0 {
			return request{}, channelError(channel, driver.ConfigurationError("%s registers cannot hold a %s", address.Table, r.dataType))
		}
		r.quantity, r.size = uint16(n), 2*n
	}
	if int(address.Offset)+int(r.quantity)*max(1, channel.Count) > 65536 {
		return request{}, channelError(channel, driver.ConfigurationError("a %s at %s goes beyond the end of the table", r.dataType, address))
	}
	if channel.WordOrder != "" {
		if r.order, err = checkWordOrder(WordOrder(channel.WordOrder)); err != nil {
			return request{}, channelError(channel, err)
		}
	}
	return r, nil
}

// read sends a read and decodes its value.
func (d *device) read(ctx context.Context, r request) (any, error) {
	raw, err := d.fetch(ctx, r, purpose{})
	if err != nil {
		return nil, err
	}
	return r.value(raw), nil
}

// purpose is what a read is for.
type purpose struct {
	// more: others follow at once. optional: its silence proves nothing, since the device may not know what it is asked.
	more, optional bool
}

// fetch sends a read and returns what came.
func (d *device) fetch(ctx context.Context, r request, p purpose) ([]byte, error) {
	data := make([]byte, 4)
	binary.BigEndian.PutUint16(data, r.address.Offset)
	binary.BigEndian.PutUint16(data[2:], r.quantity)
	var raw []byte
	err := d.endpoint.exchange(ctx, d, query{
		pdu: modbus.ProtocolDataUnit{FunctionCode: r.function, Data: data},
		parse: func(data []byte) (err error) {
			raw, err = parseRead(data, r.size)
			return err
		},
		optional: p.optional,
		more:     p.more,
	})
	return raw, err
}

// value decodes what a read returned.
func (r request) value(raw []byte) any {
	if len(raw) == 1 {
		return raw[0]&1 != 0
	}
	bits := bitsOf(raw, r.order)
	if r.dataType == driver.Bool {
		return bits != 0
	}
	// Text has no number: Check drops the value, and Read does not come here.
	v, _ := driver.FromBits(r.dataType, bits)
	return v
}

func channelError(channel driver.Channel, err error) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf("channel %q: %w", channel.Name, err)}
}
