package modbus

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
)

// BenchmarkReadAPlant reads 100 tags of each of 200 devices, all devices at once: what a Unit's runtime does every second. The CPU time is
// that of the devices too, which are in this process.
func BenchmarkReadAPlant(b *testing.B) {
	const devices, tags = 200, 100
	var plant []*modbustest.Device
	for range devices {
		dev := modbustest.New("127.0.0.1:0")
		fill(dev.Unit(1), tags)
		if err := dev.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = dev.Close() })
		plant = append(plant, dev)
	}
	channels := holdings(0, tags, 1)
	for _, c := range []struct {
		name string
		read func(d driver.Device) error
	}{
		{"joined", func(d driver.Device) error {
			_, err := d.Read(context.Background(), channels)
			return err
		}},
		{"one by one", func(d driver.Device) error {
			for i := range channels {
				if _, err := d.Read(context.Background(), channels[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			drv := newDriver()
			var open []driver.Device
			for _, dev := range plant {
				d, err := drv.Open(Config{Endpoint: dev.Endpoint(), UnitID: 1})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = d.Close() })
				open = append(open, d)
			}
			round := func() {
				var reading sync.WaitGroup
				for _, d := range open {
					reading.Go(func() {
						if err := c.read(d); err != nil {
							b.Error(err)
						}
					})
				}
				reading.Wait()
			}
			round() // Connects.
			requests := func() (n int) {
				for _, dev := range plant {
					n += dev.Requests()
				}
				return n
			}
			before, cpu, began := requests(), used(b), time.Now()
			b.ResetTimer()
			for range b.N {
				round()
			}
			b.StopTimer()
			took, cpu := time.Since(began), used(b)-cpu
			b.ReportMetric(float64(requests()-before)/float64(b.N), "requests/op")
			b.ReportMetric(float64(requests()-before)/took.Seconds(), "requests/s")
			b.ReportMetric(float64(b.N*devices*tags)/took.Seconds(), "tags/s")
			b.ReportMetric(cpu.Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// used is the CPU time of this process.
func used(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
