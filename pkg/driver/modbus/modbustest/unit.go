package modbustest

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// Unit is one unit id: four tables that hold what was set and nothing else, and a nameplate. All methods may be
// called at any time, from any goroutine.
type Unit struct {
	mu        sync.Mutex
	coils     map[uint16]bool
	discretes map[uint16]bool
	inputs    map[uint16]uint16
	holdings  map[uint16]uint16
	objects   map[byte]string
	perReply  int
	endless   bool
	silent    bool
	failure   byte
	failures  map[byte]byte
	// most elements that a read may ask for, 0 for as many as the standard allows; beyond it the unit falls silent if mute is set.
	most int
	mute bool
	// busy is how many requests are still to be answered as busy.
	busy int
	// writes are those that were carried out last.
	writes []Write
}

// Write is a request to write that a unit carried out.
type Write struct {
	At time.Time
	// Coils tells coils from holding registers.
	Coils   bool
	Address uint16
	// Values are what was written from Address on; a coil is 0 or 1.
	Values []uint16
}

// maxWrites is how many writes a unit remembers.
const maxWrites = 1024

func newUnit() *Unit {
	return &Unit{
		coils:     map[uint16]bool{},
		discretes: map[uint16]bool{},
		inputs:    map[uint16]uint16{},
		holdings:  map[uint16]uint16{},
		failures:  map[byte]byte{},
	}
}

// SetHolding sets holding registers from address on.
func (u *Unit) SetHolding(address uint16, values ...uint16) *Unit {
	return set(u, u.holdings, address, values)
}

// SetInput sets input registers from address on.
func (u *Unit) SetInput(address uint16, values ...uint16) *Unit {
	return set(u, u.inputs, address, values)
}

// SetCoil sets coils from address on.
func (u *Unit) SetCoil(address uint16, values ...bool) *Unit {
	return set(u, u.coils, address, values)
}

// SetDiscrete sets discrete inputs from address on.
func (u *Unit) SetDiscrete(address uint16, values ...bool) *Unit {
	return set(u, u.discretes, address, values)
}

func set[V any](u *Unit, table map[uint16]V, address uint16, values []V) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, v := range values {
		table[address+uint16(i)] = v
	}
	return u
}

// Holding is the value of a holding register.
func (u *Unit) Holding(address uint16) uint16 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.holdings[address]
}

// Coil is the value of a coil.
func (u *Unit) Coil(address uint16) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.coils[address]
}

// Writes are the requests to write that the unit carried out, the last 1024 of them, in their order.
func (u *Unit) Writes() []Write {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.writes)
}

// SetIdentity sets the objects of FC 43/14 by object id; a unit without any answers exception 1.
func (u *Unit) SetIdentity(objects map[byte]string) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.objects = objects
	return u
}

// IdentityInParts answers FC 43/14 with at most n objects at once; with endless it says "more follows" for ever.
func (u *Unit) IdentityInParts(n int, endless bool) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.perReply, u.endless = n, endless
	return u
}

// Silent keeps this one unit from answering.
func (u *Unit) Silent(on bool) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.silent = on
	return u
}

// Fail answers every request with the exception; 0 ends it.
func (u *Unit) Fail(exception byte) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failure = exception
	return u
}

// FailFunction answers one function code with the exception; 0 ends it.
func (u *Unit) FailFunction(function, exception byte) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failures[function] = exception
	return u
}

// AtMost refuses reads of more than n elements with exception 3, or does not answer them at all if silently; 0 ends it.
func (u *Unit) AtMost(n int, silently bool) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.most, u.mute = n, silently
	return u
}

// Busy answers the next n requests with exception 6.
func (u *Unit) Busy(n int) *Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = n
	return u
}

func exception(function, code byte) []byte { return []byte{function | 0x80, code} }

// answer is the reply PDU to a request PDU; nil for silence.
func (u *Unit) answer(pdu []byte) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.silent {
		return nil
	}
	function := pdu[0]
	if u.failure != 0 {
		return exception(function, u.failure)
	}
	if code := u.failures[function]; code != 0 {
		return exception(function, code)
	}
	if u.busy > 0 {
		u.busy--
		return exception(function, 6)
	}
	if function == 0x2B {
		return u.identification(pdu)
	}
	if len(pdu) < 5 {
		return exception(function, 3)
	}
	address, quantity := binary.BigEndian.Uint16(pdu[1:]), int(binary.BigEndian.Uint16(pdu[3:]))
	if u.most > 0 && function <= 4 && quantity > u.most {
		if u.mute {
			return nil
		}
		return exception(function, 3)
	}
	switch function {
	case 1:
		return readBits(function, u.coils, address, quantity)
	case 2:
		return readBits(function, u.discretes, address, quantity)
	case 3:
		return readRegisters(function, u.holdings, address, quantity)
	case 4:
		return readRegisters(function, u.inputs, address, quantity)
	case 5:
		if quantity != 0 && quantity != 0xFF00 {
			return exception(function, 3)
		}
		return u.writeCoils(pdu, address, []bool{quantity == 0xFF00})
	case 6:
		return u.writeHoldings(pdu, address, []uint16{uint16(quantity)})
	case 15:
		if quantity < 1 || quantity > 1968 || len(pdu) != 6+(quantity+7)/8 {
			return exception(function, 3)
		}
		values := make([]bool, quantity)
		for i := range values {
			values[i] = pdu[6+i/8]>>(i%8)&1 == 1
		}
		return u.writeCoils(pdu, address, values)
	case 16:
		if quantity < 1 || quantity > 123 || len(pdu) != 6+2*quantity {
			return exception(function, 3)
		}
		values := make([]uint16, quantity)
		for i := range values {
			values[i] = binary.BigEndian.Uint16(pdu[6+2*i:])
		}
		return u.writeHoldings(pdu, address, values)
	default:
		return exception(function, 1)
	}
}

func readBits(function byte, table map[uint16]bool, address uint16, quantity int) []byte {
	if quantity < 1 || quantity > 2000 {
		return exception(function, 3)
	}
	n := (quantity + 7) / 8
	reply := append([]byte{function, byte(n)}, make([]byte, n)...)
	for i := range quantity {
		v, ok := table[address+uint16(i)]
		if !ok {
			return exception(function, 2)
		}
		if v {
			reply[2+i/8] |= 1 << (i % 8)
		}
	}
	return reply
}

func readRegisters(function byte, table map[uint16]uint16, address uint16, quantity int) []byte {
	if quantity < 1 || quantity > 125 {
		return exception(function, 3)
	}
	reply := []byte{function, byte(2 * quantity)}
	for i := range quantity {
		v, ok := table[address+uint16(i)]
		if !ok {
			return exception(function, 2)
		}
		reply = binary.BigEndian.AppendUint16(reply, v)
	}
	return reply
}

func (u *Unit) writeCoils(pdu []byte, address uint16, values []bool) []byte {
	if !write(u.coils, address, values) {
		return exception(pdu[0], 2)
	}
	numbers := make([]uint16, len(values))
	for i, v := range values {
		if v {
			numbers[i] = 1
		}
	}
	return u.written(pdu, Write{Coils: true, Address: address, Values: numbers})
}

func (u *Unit) writeHoldings(pdu []byte, address uint16, values []uint16) []byte {
	if !write(u.holdings, address, values) {
		return exception(pdu[0], 2)
	}
	return u.written(pdu, Write{Address: address, Values: values})
}

// written remembers a write, and echoes its request.
func (u *Unit) written(pdu []byte, w Write) []byte {
	w.At = time.Now()
	if len(u.writes) == maxWrites {
		u.writes = slices.Delete(u.writes, 0, 1)
	}
	u.writes = append(u.writes, w)
	return slices.Clone(pdu[:5])
}

// write changes what is there already, all of it or nothing.
func write[V any](table map[uint16]V, address uint16, values []V) bool {
	for i := range values {
		if _, ok := table[address+uint16(i)]; !ok {
			return false
		}
	}
	for i, v := range values {
		table[address+uint16(i)] = v
	}
	return true
}

// identification answers FC 43/14, by category (1 basic, 2 regular, 3 extended).
func (u *Unit) identification(pdu []byte) []byte {
	if len(u.objects) == 0 {
		return exception(pdu[0], 1)
	}
	if len(pdu) != 4 || pdu[1] != 0x0E || pdu[2] < 1 || pdu[2] > 3 {
		return exception(0x2B, 3)
	}
	conformity := byte(1)
	var ids []byte
	for id := range u.objects {
		if id > 2 {
			conformity = 2
		}
		last := map[byte]byte{1: 2, 2: 6, 3: 255}[pdu[2]]
		if id >= pdu[3] && id <= last {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	more, next := byte(0), byte(0)
	if u.perReply > 0 && len(ids) > u.perReply {
		more, next = 0xFF, ids[u.perReply]
		ids = ids[:u.perReply]
	}
	if u.endless {
		more, next = 0xFF, pdu[3]+1
	}
	reply := []byte{0x2B, 0x0E, pdu[2], 0x80 | conformity, more, next, byte(len(ids))}
	for _, id := range ids {
		reply = append(append(reply, id, byte(len(u.objects[id]))), u.objects[id]...)
	}
	return reply
}
