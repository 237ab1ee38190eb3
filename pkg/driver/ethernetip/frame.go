package ethernetip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The encapsulation commands that we send or meet (CIP volume 2, 2-3.2).
const (
	commandNOP               = 0x00
	commandListIdentity      = 0x63
	commandRegisterSession   = 0x65
	commandUnregisterSession = 0x66
	commandSendRRData        = 0x6F
	commandSendUnitData      = 0x70
)

// headerSize is command and length (two bytes each), session and status (four each), sender context (eight), options (four).
const headerSize = 24

// The items of the common packet format (CIP volume 2, 2-6).
const (
	itemNull        = 0x00
	itemIdentity    = 0x0C
	itemConnection  = 0xA1
	itemConnected   = 0xB1
	itemUnconnected = 0xB2
)

var (
	errNotEtherNetIP  = errors.New("the peer does not speak EtherNet/IP")
	errMalformedReply = errors.New("malformed reply")
	errTooManyStale   = errors.New("too many replies to older requests")
)

// frame is one encapsulated message.
type frame struct {
	command uint16
	session uint32
	status  uint32
	context uint64
	data    []byte
}

// encode is the frame as it is sent.
func (f frame) encode() []byte {
	b := make([]byte, 0, headerSize+len(f.data))
	b = binary.LittleEndian.AppendUint16(b, f.command)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(f.data)))
	b = binary.LittleEndian.AppendUint32(b, f.session)
	b = binary.LittleEndian.AppendUint32(b, f.status)
	b = binary.LittleEndian.AppendUint64(b, f.context)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(b, f.data...)
}

// readFrame reads one frame, and says how many bytes of it came when it fails. What does not begin as an answer of
// EtherNet/IP is refused at once: its length would be noise, and waiting for it would look like silence.
func readFrame(r io.Reader) (f frame, n int, err error) {
	header := make([]byte, headerSize)
	n, err = io.ReadFull(r, header)
	if err != nil {
		return frame{}, n, err
	}
	f = frame{
		command: binary.LittleEndian.Uint16(header),
		session: binary.LittleEndian.Uint32(header[4:]),
		status:  binary.LittleEndian.Uint32(header[8:]),
		context: binary.LittleEndian.Uint64(header[12:]),
	}
	switch f.command {
	case commandNOP, commandListIdentity, commandRegisterSession, commandSendRRData, commandSendUnitData:
	default:
		return frame{}, n, errNotEtherNetIP
	}
	f.data = make([]byte, binary.LittleEndian.Uint16(header[2:]))
	m, err := io.ReadFull(r, f.data)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return f, n + m, err
}

// item is one item of the common packet format.
type item struct {
	id   uint16
	data []byte
}

// packet encodes an address item and a data item with the interface handle and the timeout before them.
func packet(timeout uint16, items ...item) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0)
	b = binary.LittleEndian.AppendUint16(b, timeout)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(items)))
	for _, i := range items {
		b = binary.LittleEndian.AppendUint16(b, i.id)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(i.data)))
		b = append(b, i.data...)
	}
	return b
}

// maxItems is how many items of a reply are looked at; none needs more than four.
const maxItems = 8

// parseItems reads the items of the common packet format.
func parseItems(data []byte) ([]item, error) {
	if len(data) < 2 {
		return nil, fmt.Errorf("%w: no items", errMalformedReply)
	}
	n := int(binary.LittleEndian.Uint16(data))
	if n > maxItems {
		return nil, fmt.Errorf("%w: %d items", errMalformedReply, n)
	}
	data = data[2:]
	items := make([]item, n)
	for i := range items {
		if len(data) < 4 || len(data) < 4+int(binary.LittleEndian.Uint16(data[2:])) {
			return nil, fmt.Errorf("%w: it ends within an item", errMalformedReply)
		}
		end := 4 + int(binary.LittleEndian.Uint16(data[2:]))
		items[i] = item{id: binary.LittleEndian.Uint16(data), data: data[4:end]}
		data = data[end:]
	}
	return items, nil
}

// parsePacket reads the address item and the data item of a reply to SendRRData or SendUnitData.
func parsePacket(data []byte, address, payload uint16) (item, item, error) {
	if len(data) < 6 {
		return item{}, item{}, fmt.Errorf("%w: no packet", errMalformedReply)
	}
	items, err := parseItems(data[6:])
	if err != nil {
		return item{}, item{}, err
	}
	if len(items) < 2 || items[0].id != address || items[1].id != payload {
		return item{}, item{}, fmt.Errorf("%w: other items than were asked for", errMalformedReply)
	}
	return items[0], items[1], nil
}
