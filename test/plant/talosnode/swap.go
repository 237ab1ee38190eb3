package talosnode

import "fmt"

// Swap exchanges the addresses of two nodes, as a DHCP server may: connections break, and maintenance mode has new keys.
func Swap(a, b *Node) error {
	if a == b {
		return fmt.Errorf("node %s cannot swap addresses with itself", a.options.Name)
	}

	// One order for all, so that two swaps at once do not wait for each other.
	first, second := a, b
	if b.options.Name < a.options.Name {
		first, second = b, a
	}

	first.mu.Lock()
	defer first.mu.Unlock()

	second.mu.Lock()
	defer second.mu.Unlock()

	a.silenceLocked()
	b.silenceLocked()

	a.address, b.address = b.address, a.address

	for _, n := range []*Node{a, b} {
		if err := n.newLeafLocked(); err != nil {
			return err
		}

		if err := n.resumeLocked(); err != nil {
			return fmt.Errorf("node %s: %w", n.options.Name, err)
		}

		n.logf("has the address %s now", &n.address)
	}

	return nil
}
