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
	// network is that of a network namespace of its own, in which nothing can be bound from here; the zero value is loopback.
	network netip.Prefix

	mu   sync.Mutex
	next uint32
	held map[string]net.PacketConn
}

// firstOfNetwork leaves a network's first addresses to the ends of the wire to its namespace.
const firstOfNetwork = 9

// NewAddressesOf gives out the addresses of an IPv4 network of 24 bits, which belongs to one network namespace of one cluster.
func NewAddressesOf(network netip.Prefix) *Addresses {
	return &Addresses{network: network.Masked(), next: firstOfNetwork, held: map[string]net.PacketConn{}}
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
	if ip, err := netip.ParseAddr(preferred); err == nil && a.has(ip) && a.reserve(preferred) {
		return preferred, nil
	}
	if a.network.IsValid() {
		for last := firstOfNetwork + 1; last < 255; last++ {
			a.next = max(firstOfNetwork, (a.next+1)%255)
			bytes := a.network.Addr().As4()
			bytes[3] = byte(a.next)
			if ip := netip.AddrFrom4(bytes).String(); a.reserve(ip) {
				return ip, nil
			}
		}
		return "", fmt.Errorf("no free pod address in %s", a.network)
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

func (a *Addresses) has(ip netip.Addr) bool {
	if a.network.IsValid() {
		return a.network.Contains(ip)
	}
	return ip.IsLoopback()
}

func (a *Addresses) reserve(ip string) bool {
	if _, held := a.held[ip]; held {
		return false
	}
	if a.network.IsValid() {
		a.held[ip] = nil
		return true
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
	}
	delete(a.held, ip)
}
