package opcua

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// nodeID is a NodeId that can be compared, and so be a key: cycles and duplicates are found by it.
type nodeID struct {
	namespace uint16
	// kind is the letter of the text form: i, s, g or b.
	kind   byte
	number uint32
	// text is the string, the GUID's canonical text, or the opaque bytes.
	text string
}

// numeric is a NodeId of namespace 0.
func numeric(n uint32) nodeID { return nodeID{kind: 'i', number: n} }

// identifier is the part after the namespace.
func (n nodeID) identifier() string {
	switch n.kind {
	case 'i':
		return "i=" + strconv.FormatUint(uint64(n.number), 10)
	case 'b':
		return "b=" + base64.StdEncoding.EncodeToString([]byte(n.text))
	default:
		return string(n.kind) + "=" + n.text
	}
}

// String is the NodeId by namespace index, as tools show it; the index holds for one session only.
func (n nodeID) String() string {
	if n.namespace == 0 {
		return n.identifier()
	}
	return fmt.Sprintf("ns=%d;%s", n.namespace, n.identifier())
}

// address is the NodeId by namespace URI, which stays valid when the indexes move.
func (n nodeID) address(namespaces []string) string {
	if n.namespace == 0 || int(n.namespace) >= len(namespaces) || namespaces[n.namespace] == "" {
		return n.String()
	}
	return "nsu=" + escapeURI.Replace(namespaces[n.namespace]) + ";" + n.identifier()
}

// ua is the NodeId for gopcua's encoder.
func (n nodeID) ua() *ua.NodeID {
	switch n.kind {
	case 's':
		return ua.NewStringNodeID(n.namespace, n.text)
	case 'g':
		return ua.NewGUIDNodeID(n.namespace, n.text)
	case 'b':
		return ua.NewByteStringNodeID(n.namespace, []byte(n.text))
	default:
		return ua.NewNumericNodeID(n.namespace, n.number)
	}
}

// A semicolon ends the URI, so that one within it is escaped (OPC 10000-6, 5.1.12).
var (
	escapeURI   = strings.NewReplacer("%", "%25", ";", "%3B")
	unescapeURI = strings.NewReplacer("%25", "%", "%3B", ";", "%3b", ";")
)

// address is a parsed address, whose namespace URI is resolved once a session has read the server's list.
type address struct {
	uri string
	id  nodeID
}

// parseAddress reads "nsu=URI;s=…", "ns=2;s=…" and "i=2258".
func parseAddress(text string) (address, error) {
	fail := func(rule string) (address, error) {
		return address{}, driver.ConfigurationError("address %q %s; write for example nsu=urn:plant:boiler;s=Pressure or ns=2;i=5", text, rule)
	}
	var a address
	rest := text
	if strings.HasPrefix(text, "ns=") || strings.HasPrefix(text, "nsu=") {
		namespace, id, ok := strings.Cut(text, ";")
		if !ok {
			return fail("has no identifier")
		}
		rest = id
		if uri, ok := strings.CutPrefix(namespace, "nsu="); ok {
			if uri == "" {
				return fail("has an empty namespace URI")
			}
			a.uri = unescapeURI.Replace(uri)
		} else {
			n, err := strconv.ParseUint(namespace[len("ns="):], 10, 16)
			if err != nil {
				return fail("must have a namespace index from 0 to 65535")
			}
			a.id.namespace = uint16(n)
		}
	}
	if len(rest) < 3 || rest[1] != '=' {
		return fail("has no identifier of the form i=, s=, g= or b=")
	}
	a.id.kind = rest[0]
	value := rest[2:]
	switch a.id.kind {
	case 'i':
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fail("must have a number from 0 to 4294967295 after i=")
		}
		a.id.number = uint32(n)
	case 's':
		a.id.text = value
	case 'g':
		raw, err := hex.DecodeString(strings.ReplaceAll(value, "-", ""))
		if err != nil || len(raw) != 16 {
			return fail("must have a GUID after g=")
		}
		a.id.text = guid(raw)
	case 'b':
		raw, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return fail("must have base64 after b=")
		}
		a.id.text = string(raw)
	default:
		return fail("has no identifier of the form i=, s=, g= or b=")
	}
	return a, nil
}

// resolve is the NodeId in a session whose server has these namespaces.
func (a address) resolve(namespaces []string) (nodeID, error) {
	if a.uri == "" {
		return a.id, nil
	}
	for i, uri := range namespaces {
		if uri == a.uri {
			id := a.id
			id.namespace = uint16(i)
			return id, nil
		}
	}
	return nodeID{}, driver.ConfigurationError("the server has no namespace %q", a.uri)
}

// guid is the canonical text of 16 bytes in the order of the text.
func guid(raw []byte) string {
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:]))
}
