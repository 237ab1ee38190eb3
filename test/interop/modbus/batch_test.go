package modbus

import (
	"fmt"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/test/interop/faultproxy"
)

// Req: P-13, P-15 (joined reads: what one request gives is what each alone gives; a gap of registers that are not there is found)
func TestManyChannelsAtOnceAreWhatEachIsAlone(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		drv := newDriver()
		together := open(t, drv, modbus.Config{Endpoint: endpoint(network)})
		alone := open(t, drv, modbus.Config{Endpoint: endpoint(network)})
		var channels []driver.Channel
		for i := range 48 {
			// Registers 28 and 29 are not there, and the last ones neither.
			channels = append(channels, driver.Channel{Address: fmt.Sprintf("holding:%d", i)})
		}
		for i, order := range []modbus.WordOrder{modbus.ABCD, modbus.CDAB, modbus.BADC, modbus.DCBA} {
			channels = append(channels,
				driver.Channel{Address: fmt.Sprintf("holding:%d", 2*i), DataType: driver.Float32, WordOrder: string(order)},
				driver.Channel{Address: fmt.Sprintf("holding:%d", 8+4*i), DataType: driver.Int64, WordOrder: string(order)},
				driver.Channel{Address: fmt.Sprintf("coil:%d", i)}, driver.Channel{Address: fmt.Sprintf("discrete:%d", i)},
				driver.Channel{Address: fmt.Sprintf("input:%d", i), DataType: driver.Int16},
			)
		}
		read, refused := 0, 0
		for range 2 {
			samples, err := together.Read(t.Context(), channels)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range samples {
				want, err := driver.ReadOne(t.Context(), alone, channels[i])
				if s.Value != want || (s.Err == nil) != (err == nil) {
					t.Errorf("%+v: %+v, alone %v, %v", channels[i], s, want, err)
				}
				if s.Err == nil {
					read++
				} else if refused++; !s.Err.Answered || s.Status != driver.StatusBadConfigurationError {
					t.Errorf("%+v: %+v", channels[i], s)
				}
			}
		}
		if read < 100 || refused < 4 {
			t.Errorf("%d channels were read and %d refused: the test tests little", read, refused)
		}
		if n := network.Accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
