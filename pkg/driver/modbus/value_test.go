package modbus

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13 (telegraf#7518: word order). The vectors are the bytes on the wire, written by hand.
func TestWordOrderGoldenVectors(t *testing.T) {
	for _, c := range []struct {
		wire  string
		order WordOrder
		as    driver.DataType
		want  any
	}{
		{"41cc0000", ABCD, driver.Float32, float32(25.5)},
		{"000041cc", CDAB, driver.Float32, float32(25.5)},
		{"cc410000", BADC, driver.Float32, float32(25.5)},
		{"0000cc41", DCBA, driver.Float32, float32(25.5)},
		{"41cc0000", CDAB, driver.Float32, math.Float32frombits(0x41cc)},

		{"12345678", ABCD, driver.Uint32, uint32(0x12345678)},
		{"56781234", CDAB, driver.Uint32, uint32(0x12345678)},
		{"34127856", BADC, driver.Uint32, uint32(0x12345678)},
		{"78563412", DCBA, driver.Uint32, uint32(0x12345678)},

		{"fffffffe", ABCD, driver.Int32, int32(-2)},
		{"fffeffff", CDAB, driver.Int32, int32(-2)},
		{"fffffeff", BADC, driver.Int32, int32(-2)},
		{"feffffff", DCBA, driver.Int32, int32(-2)},

		{"0102030405060708", ABCD, driver.Int64, int64(0x0102030405060708)},
		{"0708050603040102", CDAB, driver.Int64, int64(0x0102030405060708)},
		{"0201040306050807", BADC, driver.Int64, int64(0x0102030405060708)},
		{"0807060504030201", DCBA, driver.Int64, int64(0x0102030405060708)},

		{"fffffffffffffffe", ABCD, driver.Uint64, uint64(0xfffffffffffffffe)},
		{"fffeffffffffffff", CDAB, driver.Uint64, uint64(0xfffffffffffffffe)},

		{"4039800000000000", ABCD, driver.Float64, 25.5},
		{"0000000080004039", CDAB, driver.Float64, float64(25.5)},
		{"3940008000000000", BADC, driver.Float64, 25.5},
		{"0000000000803940", DCBA, driver.Float64, 25.5},

		{"1234", ABCD, driver.Uint16, uint16(0x1234)},
		{"1234", CDAB, driver.Uint16, uint16(0x1234)},
		{"1234", BADC, driver.Uint16, uint16(0x3412)},
		{"1234", DCBA, driver.Uint16, uint16(0x3412)},
		{"ff9c", ABCD, driver.Int16, int16(-100)},
		{"0100", ABCD, driver.Bool, true},
		{"0000", ABCD, driver.Bool, false},
		{"01", ABCD, driver.Bool, true},
		{"00", ABCD, driver.Bool, false},
	} {
		t.Run(c.wire+" as "+string(c.as)+" in "+string(c.order), func(t *testing.T) {
			raw, err := hex.DecodeString(c.wire)
			if err != nil {
				t.Fatal(err)
			}
			if got := (request{dataType: c.as, order: c.order}).value(raw); got != c.want {
				t.Errorf("got %v (%T), want %v (%T)", got, got, c.want, c.want)
			}
		})
	}
}
