package modbus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/goburrow/modbus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// coilOn is what FC 5 writes for true.
const coilOn = 0xFF00

// doubtful are the failures after which nobody knows whether a write was done.
var doubtful = map[driver.Reason]bool{
	driver.ReasonTimeout:           true,
	driver.ReasonConnectionLost:    true,
	driver.ReasonProtocolError:     true,
	driver.ReasonUnitNotResponding: true,
}

// writableTable tells whether Modbus has a function that writes the table.
func writableTable(t Table) bool { return t == Coil || t == Holding }

// Write implements driver.Device: a coil by FC 5, one register by FC 6 and more by FC 16. A register whose type is bool
// becomes 1 or 0. The request is never sent twice: what became of one whose reply was lost is not known.
func (d *device) Write(ctx context.Context, channel driver.Channel, value any) error {
	r, err := d.request(channel)
	if err != nil {
		return err
	}
	switch {
	case !writableTable(r.address.Table):
		return channelError(channel, driver.ConfigurationError("the %s table cannot be written", r.address.Table))
	case channel.Access == driver.AccessRead:
		return channelError(channel, driver.ConfigurationError("it is declared as %s", channel.Access))
	case channel.Count > 1:
		return channel.Array()
	case r.dataType == driver.String:
		return &driver.Error{Reason: driver.ReasonNotSupported, Err: fmt.Errorf("channel %q: texts are not written over Modbus", channel.Name)}
	}
	if r.dataType == driver.Bool {
		on, ok := value.(bool)
		if !ok {
			return channelError(channel, driver.ConfigurationError("a %s cannot hold %T", r.dataType, value))
		}
		if r.bits {
			var payload uint16
			if on {
				payload = coilOn
			}
			return d.write(ctx, modbus.FuncCodeWriteSingleCoil, r.address, bigEndian(payload), 0)
		}
		r.dataType, value = driver.Uint16, 0
		if on {
			value = 1
		}
	}
	bits, ok := driver.ToBits(r.dataType, value)
	if !ok {
		return channelError(channel, driver.ConfigurationError("a %s cannot hold %v", r.dataType, value))
	}
	registers := registersOf(bits, int(r.quantity), r.order)
	if r.quantity == 1 {
		err := d.write(ctx, modbus.FuncCodeWriteSingleRegister, r.address, registers, 0)
		if e, ok := errors.AsType[*driver.Error](err); !ok || !e.Answered || e.Reason != driver.ReasonNotSupported {
			return err
		}
		// There are devices that know FC 16 alone; this one has said that it did nothing.
	}
	return d.write(ctx, modbus.FuncCodeWriteMultipleRegisters, r.address, registers, r.quantity)
}

// write sends one write; quantity is 0 for the functions that write a single element.
func (d *device) write(ctx context.Context, function byte, address Address, payload []byte, quantity uint16) error {
	data := append(bigEndian(address.Offset), payload...)
	echo := data
	if quantity > 0 {
		echo = append(bigEndian(address.Offset), bigEndian(quantity)...)
		data = append(append(bytes.Clone(echo), byte(len(payload))), payload...)
	}
	err := d.endpoint.exchange(ctx, d, query{
		pdu:    modbus.ProtocolDataUnit{FunctionCode: function, Data: data},
		writes: true,
		parse: func(data []byte) error {
			if !bytes.Equal(data, echo) {
				return fmt.Errorf("%w: the device confirms another write than it was asked for", errMalformedReply)
			}
			return nil
		},
	})
	if e, ok := errors.AsType[*driver.Error](err); ok && doubtful[e.Reason] && !e.Answered {
		return &driver.Error{Reason: e.Reason, Err: fmt.Errorf("%s may or may not have been written: %w", address, e.Err)}
	}
	return err
}

func bigEndian(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// endedByPeer tells whether the peer has closed or reset the connection already, without taking anything from it. A write on
// such a connection would fail with nobody knowing whether it was done.
func endedByPeer(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = err == nil && n == 0 || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return err != nil || ended
}
