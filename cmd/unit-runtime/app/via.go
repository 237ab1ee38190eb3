package app

import (
	"fmt"
	"sync"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/probe/remote"
)

// probes are those through which modules are read whose devices allow too few connections, by address.
type probes struct {
	client func(address string) *probeclient.Client
	// name is unlike that of any earlier start.
	name string

	mu     sync.Mutex
	opened map[string]*via
	count  int
}

// via is a probe and the number of modules that are read through it.
type via struct {
	probe *remote.Probe
	users int
}

// open is the device of a module, through its probe at address.
func (p *probes) open(address, uid string) driver.Device {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.opened[address]
	if v == nil {
		p.count++
		v = &via{probe: remote.New(address, p.client(address), fmt.Sprintf("%s-%d", p.name, p.count))}
		p.opened[address] = v
	}
	v.users++
	return &viaDevice{Device: v.probe.Open(uid), closed: func() { p.release(address) }}
}

// release lets go of a probe that nothing is read through any more.
func (p *probes) release(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.opened[address]
	if v.users--; v.users == 0 {
		v.probe.Close()
		delete(p.opened, address)
	}
}

// viaDevice is a device that holds its probe's connections open.
type viaDevice struct {
	driver.Device
	once   sync.Once
	closed func()
}

// Close implements driver.Device.
func (d *viaDevice) Close() error {
	err := d.Device.Close()
	d.once.Do(d.closed)
	return err
}
