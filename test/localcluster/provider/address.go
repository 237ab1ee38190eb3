package provider

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Pod addresses are taken from 127.64.0.0/10.
const (
	podNetworkBits = 22
	// reservationPort is bound (UDP) on a pod's address for as long as the pod has
	// it, so that no other cluster on this machine gives it out as well.
	reservationPort = 65535
)

// Addresses gives each pod a loopback address of its own, unique on this
// machine. It is safe for concurrent use.
type Addresses struct {
	mu   sync.Mutex
	next uint32
	held map[string]net.PacketConn
}

// NewAddresses starts giving out addresses at a place that depends on seed, so
// that clusters that run side by side seldom meet.
func NewAddresses(seed int) *Addresses {
	return &Addresses{next: uint32(seed) * 2654435761, held: map[string]net.PacketConn{}}
}

// Acquire returns a free address, the preferred one if that is free.
func (a *Addresses) Acquire(preferred string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ip, err := netip.ParseAddr(preferred); err == nil && ip.IsLoopback() && a.reserve(preferred) {
		return preferred, nil
	}
	for range 1 << 16 {
		a.next++
		n := a.next % (1 << podNetworkBits)
		if last := n & 0xff; last == 0 || last == 0xff {
			continue
		}
		ip := netip.AddrFrom4([4]byte{127, byte(64 + n>>16), byte(n >> 8), byte(n)}).String()
		if a.reserve(ip) {
			return ip, nil
		}
	}
	return "", errors.New("no free pod address in 127.64.0.0/10")
}

func (a *Addresses) reserve(ip string) bool {
	if a.held[ip] != nil {
		return false
	}
	conn, err := net.ListenPacket("udp4", fmt.Sprintf("%s:%d", ip, reservationPort))
	if err != nil {
		return false
	}
	a.held[ip] = conn
	return true
}

// Release gives an address back.
func (a *Addresses) Release(ip string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if conn := a.held[ip]; conn != nil {
		conn.Close()
		delete(a.held, ip)
	}
}
