package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
)

// answerModbus answers every read of one register.
func answerModbus(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	request := make([]byte, 12)
	for {
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		reply := append([]byte{}, request[:8]...)
		binary.BigEndian.PutUint16(reply[4:], 5)
		if request[7] == 0x2B {
			// It has no nameplate.
			reply[7] |= 0x80
			binary.BigEndian.PutUint16(reply[4:], 3)
			reply = append(reply, 1)
		} else {
			reply = append(reply, 2, 0, 1)
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// Req: P-16 (device back → Online ≤ 15 s, however many others stay silent)
func TestADeviceIsBackInTimeAmongManyThatStaySilent(t *testing.T) {
	const returning = 10
	crowds := []int{0, 300, 1000 - returning}
	if testing.Short() {
		crowds = crowds[:2]
	}
	for _, silent := range crowds {
		synctest.Test(t, func(t *testing.T) {
			var alive [returning]atomic.Bool
			dial := func(ctx context.Context, _, address string) (net.Conn, error) {
				for i := range alive {
					if alive[i].Load() && address == fmt.Sprintf("returns%d:502", i) {
						ours, theirs := net.Pipe()
						go answerModbus(theirs)
						return ours, nil
					}
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			p := New(Options{
				Open:  Drivers{Modbus: modbus.New(dial, driver.NewConnectLimit(20))}.Open,
				Clock: clock.RealClock{}, Seed: 1, BootID: "boot", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
			})
			s := &site{Probe: p}
			defer p.Stop()
			var entries []string
			for i := range silent + returning {
				name := fmt.Sprint("silent", i)
				if i < returning {
					name = fmt.Sprint("returns", i)
				}
				entries = append(entries, entry(name, fmt.Sprintf("tcp://%s:502", name), 1))
			}
			s.apply(t, entries...)
			time.Sleep(2 * time.Minute)
			for _, m := range p.List().Modules {
				if !fault(m) || m.Stale {
					t.Fatalf("a device that is silent: %+v", m)
				}
			}
			worst := time.Duration(0)
			for i := range returning {
				time.Sleep(1370 * time.Millisecond)
				alive[i].Store(true)
				worst = max(worst, s.until(t, fmt.Sprint("returns", i), "online", online))
			}
			t.Logf("%d silent: back after %s at most", silent, worst)
			if worst > 15*time.Second {
				t.Errorf("%d silent: back after %s", silent, worst)
			}
		})
	}
}
