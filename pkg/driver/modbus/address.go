package modbus

import (
	"strconv"
	"strings"

	"github.com/goburrow/modbus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Addressing says how an address that is a bare number counts. It is declared and never guessed: a map read off by
// one returns plausible values that straddle two others (OpenEMS#86).
type Addressing string

const (
	// ZeroBased accepts only table:offset, where the offset is the protocol's own, counted from 0.
	ZeroBased Addressing = "zeroBased"
	// Reference also accepts reference numbers of five or six digits: 40001 is holding register 0.
	Reference Addressing = "reference"
)

// Table is one of the four tables of the Modbus data model.
type Table string

// The four tables.
const (
	Coil     Table = "coil"
	Discrete Table = "discrete"
	Input    Table = "input"
	Holding  Table = "holding"
)

// tables maps each table to the function that reads it and to the first digit of its reference numbers.
var tables = [...]struct {
	table Table
	read  byte
	digit byte
	bits  bool
}{
	{Coil, modbus.FuncCodeReadCoils, '0', true},
	{Discrete, modbus.FuncCodeReadDiscreteInputs, '1', true},
	{Input, modbus.FuncCodeReadInputRegisters, '3', false},
	{Holding, modbus.FuncCodeReadHoldingRegisters, '4', false},
}

// Address is a place in one of the tables, its offset counted from 0 as on the wire.
type Address struct {
	Table  Table
	Offset uint16
}

// String is the address in its unambiguous form.
func (a Address) String() string {
	return string(a.Table) + ":" + strconv.Itoa(int(a.Offset))
}

// ParseAddress reads "holding:100" (offset 100, always counted from 0) and, with Reference only, reference numbers
// such as 40101 or 400101.
func ParseAddress(text string, addressing Addressing) (Address, error) {
	if name, offset, ok := strings.Cut(text, ":"); ok {
		for _, t := range tables {
			if string(t.table) != name {
				continue
			}
			n, err := strconv.ParseUint(offset, 10, 16)
			if err != nil {
				return Address{}, driver.ConfigurationError("address %q: the offset must be a number from 0 to 65535", text)
			}
			return Address{Table: t.table, Offset: uint16(n)}, nil
		}
		return Address{}, driver.ConfigurationError("address %q: the table must be coil, discrete, input or holding", text)
	}

	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return Address{}, driver.ConfigurationError("address %q: write table:offset, for example holding:100", text)
	}
	if addressing != Reference {
		return Address{}, driver.ConfigurationError("address %q is a reference number, which needs addressing: reference; or write table:offset", text)
	}
	if len(text) != 5 && len(text) != 6 {
		return Address{}, driver.ConfigurationError("address %q: a reference number has five or six digits, for example 40001", text)
	}
	for _, t := range tables {
		if text[0] != t.digit {
			continue
		}
		base := uint64(t.digit-'0') * 10000
		if len(text) == 6 {
			base *= 10
		}
		if n -= base; n < 1 || n > 65536 {
			break
		}
		return Address{Table: t.table, Offset: uint16(n - 1)}, nil
	}
	return Address{}, driver.ConfigurationError("address %q: reference numbers begin with 0, 1, 3 or 4 and count from 1 to 65536", text)
}
