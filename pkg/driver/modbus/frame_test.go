package modbus

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goburrow/modbus"
)

// FuzzReply feeds whatever a peer may send to the whole reply parser: it may fail, never panic, and what it accepts
// has the size that was asked for. Req: P-13
func FuzzReply(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 5, 1, 3, 2, 0x12, 0x34})
	f.Add([]byte{0, 1, 0, 0, 0, 3, 1, 0x83, 2})
	f.Add([]byte{0, 1, 0, 0, 0, 2, 1, 3})
	f.Add([]byte{0, 1, 0, 0, 0, 0, 1})
	f.Add([]byte{0, 1, 0, 0, 0xFF, 0xFF, 1, 3, 2})
	f.Add([]byte{0, 1, 0, 0, 0, 4, 1, 0x2B, 0x0E, 1})
	f.Add(append([]byte{0, 1, 0, 0, 0, 13, 1, 0x2B, 0x0E, 1, 0x81, 0, 0, 1, 0, 3}, "abc"...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		adu, n, err := readFrame(bytes.NewReader(wire))
		if n > len(wire) {
			t.Fatalf("%d bytes read of %d", n, len(wire))
		}
		if err != nil {
			return
		}
		for _, function := range []byte{3, functionEncapsulated} {
			p := modbus.NewTCPClientHandler("")
			p.SlaveId = 1
			request, err := p.Encode(&modbus.ProtocolDataUnit{FunctionCode: function, Data: []byte{0, 0, 0, 1}})
			if err != nil {
				t.Fatal(err)
			}
			pdu, err := parseReply(p, request, adu)
			if _, ok := errors.AsType[*modbus.ModbusError](err); ok && len(adu) != 9 {
				t.Fatalf("% x counts as an exception", adu)
			}
			if err != nil {
				continue
			}
			if raw, err := parseRead(pdu.Data, 2); err == nil && len(raw) != 2 {
				t.Fatalf("% x passes as one register", raw)
			}
			if id, err := parseIdentification(pdu.Data); err == nil {
				for _, text := range id.objects {
					if len(text) > maxNameplate {
						t.Fatalf("an object of %d bytes", len(text))
					}
				}
			}
		}
	})
}
