package opcua

import (
	"encoding/binary"
	"math"

	"github.com/gopcua/opcua/ua"
)

// quickRequest is a request that encodes itself. Reading and browsing carry thousands of operations, for which gopcua's
// encoder by reflection takes longer than the whole rest of a discovery on our side.
type quickRequest interface {
	// encoding is the NodeId of the request's binary encoding.
	encoding() uint16
	// appendBody appends what follows the request's header.
	appendBody(b []byte) []byte
}

// appendNodeID appends a NodeId in its shortest encoding.
func appendNodeID(b []byte, n nodeID) []byte {
	switch {
	case n.kind == 'i' && n.namespace == 0 && n.number <= math.MaxUint8:
		return append(b, 0, byte(n.number))
	case n.kind == 'i' && n.namespace <= math.MaxUint8 && n.number <= math.MaxUint16:
		return binary.LittleEndian.AppendUint16(append(b, 1, byte(n.namespace)), uint16(n.number))
	case n.kind == 'i':
		b = binary.LittleEndian.AppendUint16(append(b, 2), n.namespace)
		return binary.LittleEndian.AppendUint32(b, n.number)
	case n.kind == 's' || n.kind == 'b':
		encoding := byte(3)
		if n.kind == 'b' {
			encoding = 5
		}
		b = binary.LittleEndian.AppendUint16(append(b, encoding), n.namespace)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(n.text)))
		return append(b, n.text...)
	default:
		encoded, err := n.ua().Encode()
		if err != nil {
			// A GUID's text was checked when it was read; the null node is what is left to name.
			return append(b, 0, 0)
		}
		return append(b, encoded...)
	}
}

// appendNull appends a null string.
func appendNull(b []byte) []byte { return append(b, 255, 255, 255, 255) }

// readRequest reads attributes, with the time at their source.
type readRequest struct {
	attributes []attribute
}

// SetHeader is ua.Request's, and is never called: the header is encoded before the body.
func (readRequest) SetHeader(*ua.RequestHeader) {}

// Header is ua.Request's.
func (readRequest) Header() *ua.RequestHeader { return nil }

func (readRequest) encoding() uint16 { return 631 }

func (r readRequest) appendBody(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, 0) // MaxAge: from the source
	b = binary.LittleEndian.AppendUint32(b, uint32(ua.TimestampsToReturnSource))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.attributes)))
	for _, a := range r.attributes {
		b = appendNodeID(b, a.node)
		b = binary.LittleEndian.AppendUint32(b, uint32(a.id))
		b = appendNull(b)               // IndexRange
		b = appendNull(append(b, 0, 0)) // DataEncoding
	}
	return b
}

// browseRequest browses the nodes at the indexes todo forward along hierarchical references.
type browseRequest struct {
	nodes []nodeID
	todo  []int
}

// SetHeader is ua.Request's, and is never called: the header is encoded before the body.
func (browseRequest) SetHeader(*ua.RequestHeader) {}

// Header is ua.Request's.
func (browseRequest) Header() *ua.RequestHeader { return nil }

func (browseRequest) encoding() uint16 { return 527 }

func (r browseRequest) appendBody(b []byte) []byte {
	b = append(b, 0, 0)                        // View: none,
	b = binary.LittleEndian.AppendUint64(b, 0) // of no time
	b = binary.LittleEndian.AppendUint32(b, 0) // and no version
	b = binary.LittleEndian.AppendUint32(b, maxReferencesPerNode)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.todo)))
	for _, index := range r.todo {
		b = appendNodeID(b, r.nodes[index])
		b = binary.LittleEndian.AppendUint32(b, uint32(ua.BrowseDirectionForward))
		b = appendNodeID(b, numeric(referenceHierarchical))
		b = append(b, 1) // with subtypes
		b = binary.LittleEndian.AppendUint32(b, classObject|classVariable)
		b = binary.LittleEndian.AppendUint32(b, resultMask)
	}
	return b
}
