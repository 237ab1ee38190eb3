package ethernetip

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// vendorID is ours as an originator; ODVA has given it to nobody.
	vendorID = 0x9999
	// largeSize and smallSize are how many bytes a message may have over a connection made by either Forward Open.
	largeSize = 4000
	smallSize = 500
	// requestedInterval and timeoutMultiplier (2^(n+2)) say when the device may give an idle connection up: after 80 s.
	requestedInterval = 2500 * time.Millisecond
	timeoutMultiplier = 3
	// maxIdle is how long a connection may be idle before it is made anew; it is less than those 80 s.
	maxIdle = 60 * time.Second
	// class3 is the transport: a server's, triggered by its application (CIP volume 1, 3-4.4.3).
	class3 = 0xA3
	// variablePointToPoint are the network connection parameters besides the size: no redundant owner, point to point, low
	// priority, variable size.
	variablePointToPoint = 0x4200
	// priorityTick and ticks bound how long bridges on the way may try: 2^0 ms × 250 × 4.
	priorityTick = 0x02
	ticks        = 250
)

// connection is a CIP connection of transport class 3.
type connection struct {
	serial uint16
	// target is the identifier that our messages carry, originator the one in the device's.
	target     uint32
	originator uint32
	sequence   uint16
	// size is how many bytes a message may have, either way.
	size     int
	lastUsed time.Time
}

// openConnection sends a Large Forward Open, and a small one to devices that do not know it.
func (e *endpoint) openConnection(ctx context.Context, deadline time.Time) error {
	if !e.smallOnly {
		status, err := e.forwardOpen(ctx, serviceLargeForwardOpen, deadline)
		if err != nil || status == (cipStatus{}) {
			return err
		}
		if m, known := openStatuses[status]; known && (status.general == statusConnectionFailure || m.reason != driver.ReasonPathRejected) {
			// The size is not what it refuses.
			return status.openError(e.address, e.path)
		}
	}
	status, err := e.forwardOpen(ctx, serviceForwardOpen, deadline)
	switch {
	case err != nil:
		return err
	case status == (cipStatus{}):
		e.smallOnly = true
		return nil
	default:
		// Another firmware, or another device, may have the large one next time.
		e.smallOnly = status.general == statusServiceUnknown
		return status.openError(e.address, e.path)
	}
}

// duplicateConnection is the status of a Forward Open of a connection that the device believes to have already.
var duplicateConnection = cipStatus{statusConnectionFailure, 0x0100}

// forwardOpen asks for a connection, and once more under another number if the device has one of the first.
func (e *endpoint) forwardOpen(ctx context.Context, service byte, deadline time.Time) (cipStatus, error) {
	status, err := e.forwardOpenOnce(ctx, service, deadline)
	if err == nil && status == duplicateConnection {
		return e.forwardOpenOnce(ctx, service, deadline)
	}
	return status, err
}

// forwardOpenOnce asks the connection manager for a connection to the message router at the end of the route.
func (e *endpoint) forwardOpenOnce(ctx context.Context, service byte, deadline time.Time) (cipStatus, error) {
	e.connections++
	size := smallSize
	if service == serviceLargeForwardOpen {
		size = largeSize
	}
	c := &connection{size: size, serial: e.connections, originator: e.serial ^ uint32(e.connections)<<16, lastUsed: time.Now()}
	interval := uint32(requestedInterval.Microseconds())
	path := append(append([]byte{}, e.route...), messageRouter...)

	b := []byte{priorityTick, ticks}
	b = binary.LittleEndian.AppendUint32(b, 0) // the target chooses its own identifier
	b = binary.LittleEndian.AppendUint32(b, c.originator)
	b = e.triad(b, c.serial)
	b = append(b, timeoutMultiplier, 0, 0, 0)
	for range 2 { // originator to target, and back
		b = binary.LittleEndian.AppendUint32(b, interval)
		if service == serviceLargeForwardOpen {
			b = binary.LittleEndian.AppendUint32(b, variablePointToPoint<<16|largeSize)
		} else {
			b = binary.LittleEndian.AppendUint16(b, variablePointToPoint|smallSize)
		}
	}
	b = append(b, class3, byte(len(path)/2))
	b = append(b, path...)

	answer, err := e.unconnected(ctx, request{service: service, path: object(classConnectionManager, 1), data: b}, deadline)
	if err != nil {
		return cipStatus{}, fmt.Errorf("opening a connection: %w", err)
	}
	if answer.status != (cipStatus{}) {
		return answer.status, nil
	}
	// Two identifiers, the triad, two intervals, the size of an application reply.
	if len(answer.data) < 24 {
		return cipStatus{}, fmt.Errorf("opening a connection: %w: too short", errMalformedReply)
	}
	if binary.LittleEndian.Uint16(answer.data[8:]) != c.serial {
		return cipStatus{}, fmt.Errorf("opening a connection: %w: of another connection", errMalformedReply)
	}
	c.target = binary.LittleEndian.Uint32(answer.data)
	if chosen := binary.LittleEndian.Uint32(answer.data[4:]); chosen != 0 {
		c.originator = chosen
	}
	e.cip = c
	return cipStatus{}, nil
}

// forwardClose is the request that gives the connection back.
func (e *endpoint) forwardClose() request {
	path := append(append([]byte{}, e.route...), messageRouter...)
	b := e.triad([]byte{priorityTick, ticks}, e.cip.serial)
	b = append(b, byte(len(path)/2), 0)
	return request{service: serviceForwardClose, path: object(classConnectionManager, 1), data: append(b, path...)}
}

// triad names a connection among all that were ever opened: its serial number, our vendor, our serial number.
func (e *endpoint) triad(b []byte, serial uint16) []byte {
	b = binary.LittleEndian.AppendUint16(b, serial)
	b = binary.LittleEndian.AppendUint16(b, vendorID)
	return binary.LittleEndian.AppendUint32(b, e.serial)
}
