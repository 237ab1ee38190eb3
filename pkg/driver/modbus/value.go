package modbus

import (
	"github.com/fieldplane/fieldplane/pkg/driver"
)

// WordOrder is where the bytes of a value lie in its registers, A being the most significant. A wrong order is
// silent: float 25.5 read as CDAB instead of ABCD is 2.36e-41 (telegraf#7518).
type WordOrder string

// The four orders; on values of 64 bits they go on in the same way (CDAB is GHEFCDAB).
const (
	ABCD WordOrder = "ABCD"
	CDAB WordOrder = "CDAB"
	BADC WordOrder = "BADC"
	DCBA WordOrder = "DCBA"
)

// words is how many registers a value of the type takes; 0 for a type that registers cannot hold.
func words(t driver.DataType) int {
	switch t {
	case driver.Int16, driver.Uint16:
		return 1
	case driver.Int32, driver.Uint32, driver.Float32:
		return 2
	case driver.Int64, driver.Uint64, driver.Float64:
		return 4
	default:
		return 0
	}
}

// checkWordOrder returns the order itself, or ABCD for none.
func checkWordOrder(o WordOrder) (WordOrder, error) {
	switch o {
	case "":
		return ABCD, nil
	case ABCD, CDAB, BADC, DCBA:
		return o, nil
	default:
		return "", driver.ConfigurationError("word order %q is not ABCD, CDAB, BADC or DCBA", o)
	}
}

// bitsOf joins the registers, big-endian bytes as they came off the wire, into one number.
func bitsOf(raw []byte, order WordOrder) uint64 {
	n := len(raw)
	var bits uint64
	for i := range n {
		word, low := i/2, i%2
		if order == CDAB || order == DCBA {
			word = n/2 - 1 - word
		}
		if order == BADC || order == DCBA {
			low = 1 - low
		}
		bits = bits<<8 | uint64(raw[word*2+low])
	}
	return bits
}

// registersOf is the inverse of bitsOf: the n registers of a number, as bytes for the wire.
func registersOf(bits uint64, n int, order WordOrder) []byte {
	raw := make([]byte, 2*n)
	for i := range raw {
		word, low := i/2, i%2
		if order == CDAB || order == DCBA {
			word = n - 1 - word
		}
		if order == BADC || order == DCBA {
			low = 1 - low
		}
		raw[word*2+low] = byte(bits >> (8 * (len(raw) - 1 - i)))
	}
	return raw
}
