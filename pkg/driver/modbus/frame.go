package modbus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/goburrow/modbus"
)

const (
	// headerSize is transaction id, protocol id, length (two bytes each) and unit id.
	headerSize = 7
	// maxLength of the header's length member: unit id and a PDU of 253 bytes.
	maxLength = 254

	functionException       = 0x80
	functionEncapsulated    = 0x2B
	meiDeviceIdentification = 0x0E
)

var (
	errNotModbus      = errors.New("the peer does not speak Modbus TCP")
	errMalformedReply = errors.New("malformed reply")
	errTooManyStale   = errors.New("too many replies to older requests")
)

// readFrame reads one frame, and says how many bytes of it came when it fails. What it returns is long enough for
// goburrow's Verify and Decode, which index without looking.
func readFrame(r io.Reader) (adu []byte, n int, err error) {
	buffer := make([]byte, headerSize, headerSize+maxLength-1)
	n, err = io.ReadFull(r, buffer)
	if err != nil {
		return nil, n, err
	}
	if binary.BigEndian.Uint16(buffer[2:]) != 0 {
		return nil, n, errNotModbus
	}
	length := int(binary.BigEndian.Uint16(buffer[4:]))
	if length < 2 || length > maxLength {
		return nil, n, errNotModbus
	}
	buffer = buffer[:headerSize+length-1]
	m, err := io.ReadFull(r, buffer[headerSize:])
	if err != nil {
		return nil, n + m, err
	}
	return buffer, n + m, nil
}

func transactionID(adu []byte) uint16 { return binary.BigEndian.Uint16(adu) }

// parseReply is the PDU of the reply to request, or the exception as a *modbus.ModbusError.
func parseReply(p modbus.Packager, request, reply []byte) (*modbus.ProtocolDataUnit, error) {
	if err := p.Verify(request, reply); err != nil {
		return nil, err
	}
	pdu, err := p.Decode(reply)
	if err != nil {
		return nil, err
	}
	asked := request[headerSize]
	switch {
	case pdu.FunctionCode == asked:
		return pdu, nil
	case pdu.FunctionCode == asked|functionException && len(pdu.Data) == 1:
		return nil, &modbus.ModbusError{FunctionCode: asked, ExceptionCode: pdu.Data[0]}
	default:
		return nil, fmt.Errorf("%w: function 0x%02x to a request of 0x%02x", errMalformedReply, pdu.FunctionCode, asked)
	}
}

// parseRead is the payload of a reply to a read that asked for size bytes.
func parseRead(data []byte, size int) ([]byte, error) {
	if len(data) != 1+size || int(data[0]) != size {
		return nil, fmt.Errorf("%w: %d bytes where %d were asked for", errMalformedReply, max(0, len(data)-1), size)
	}
	return data[1:], nil
}

// identification is one reply to FC 43/14: read device identification.
type identification struct {
	conformity byte
	more       bool
	next       byte
	objects    map[byte]string
}

// parseIdentification reads the reply to FC 43/14.
func parseIdentification(data []byte) (identification, error) {
	// MEI type, code asked for, conformity level, more follows, next object id, number of objects.
	if len(data) < 6 || data[0] != meiDeviceIdentification {
		return identification{}, fmt.Errorf("%w: no device identification", errMalformedReply)
	}
	id := identification{
		conformity: data[2],
		more:       data[3] == 0xFF,
		next:       data[4],
		objects:    map[byte]string{},
	}
	rest := data[6:]
	for range data[5] {
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return identification{}, fmt.Errorf("%w: device identification ends within an object", errMalformedReply)
		}
		size := int(rest[1])
		id.objects[rest[0]] = printable(rest[2 : 2+size])
		rest = rest[2+size:]
	}
	return id, nil
}

// maxNameplate bounds one member of an identity: it ends up in a status.
const maxNameplate = 64

// printable is a device's text with everything but printable ASCII left out: it is shown on terminals.
func printable(raw []byte) string {
	text := make([]byte, 0, len(raw))
	for _, b := range raw {
		if b >= ' ' && b <= '~' && len(text) < maxNameplate {
			text = append(text, b)
		}
	}
	return string(text)
}
