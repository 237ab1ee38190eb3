package probe

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
)

func specOf(t *testing.T, spec string) v1alpha1.IOModuleSpec {
	t.Helper()
	c, err := ParseConfig([]byte(`{"modules":[{"name":"a","spec":` + spec + `}]}`))
	if err != nil || c.Modules[0].Err != nil {
		t.Fatal(err, c)
	}
	return c.Modules[0].Spec
}

func allDrivers(dial func(context.Context, string, string) (net.Conn, error)) Drivers {
	connects := driver.NewConnectLimit(20)
	return Drivers{
		Modbus:     modbus.New(dial, connects),
		OPCUA:      opcua.New(dial, connects, opcua.Options{}),
		EtherNetIP: ethernetip.New(dial, connects, 1),
	}
}

// Req: P-01, P-13
func TestADeviceIsOpenedByItsProtocol(t *testing.T) {
	refused := errors.New("no network in this test")
	var dialled []string
	all := allDrivers(func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, refused
	})
	for _, c := range []struct{ name, spec, dials string }{
		{"modbus", `{"protocol":"modbus","modbus":{"endpoint":"tcp://127.0.0.1"}}`, "127.0.0.1:502"},
		{"opcua", `{"protocol":"opcua","opcua":{"endpoint":"opc.tcp://127.0.0.1","securityPolicy":"None"}}`, "127.0.0.1:4840"},
		{"ethernetip", `{"protocol":"ethernetip","ethernetip":{"endpoint":"tcp://127.0.0.1"}}`, "127.0.0.1:44818"},
		{"simulation", `{"protocol":"simulation","simulation":{"seed":7},"controllerRef":{"name":"c"}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dialled = nil
			d, err := all.Open(specOf(t, c.spec))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if len(dialled) > 0 {
				t.Error("it connects before it is asked")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err = d.Check(ctx)
			if (err == nil) != (c.dials == "") || strings.Join(dialled, ",") != c.dials {
				t.Errorf("%v, dialled %v, want %q", err, dialled, c.dials)
			}
		})
	}
	if n := all.Endpoints(); n != 0 {
		t.Errorf("%d endpoints of no device", n)
	}
}

// Req: P-01
func TestWhatCannotBeOpenedIsTypedAndSaysWhatToDo(t *testing.T) {
	all := allDrivers((&net.Dialer{}).DialContext)
	for _, c := range []struct {
		name, spec string
		drivers    Drivers
		want       driver.Reason
		says       string
	}{
		{"no settings for modbus", `{"protocol":"modbus"}`, all, driver.ReasonConfigurationError, "spec.modbus"},
		{"no settings for opcua", `{"protocol":"opcua"}`, all, driver.ReasonConfigurationError, "spec.opcua"},
		{"no settings for ethernetip", `{"protocol":"ethernetip"}`, all, driver.ReasonConfigurationError, "spec.ethernetip"},
		{"a protocol that is none", `{"protocol":"carrierpigeon"}`, all, driver.ReasonNotSupported, "carrierpigeon"},
		{"a driver that this probe lacks", `{"protocol":"opcua","opcua":{"endpoint":"opc.tcp://127.0.0.1"}}`, Drivers{}, driver.ReasonNotSupported, "opcua"},
		{"a unit id that is none", `{"protocol":"modbus","modbus":{"endpoint":"tcp://127.0.0.1","unitID":256}}`, all, driver.ReasonConfigurationError, "256"},
		{"an endpoint of another protocol", `{"protocol":"opcua","opcua":{"endpoint":"tcp://127.0.0.1"}}`, all, driver.ReasonConfigurationError, "opc.tcp"},
		{"a route that is none", `{"protocol":"ethernetip","ethernetip":{"endpoint":"tcp://127.0.0.1","path":"1"}}`, all, driver.ReasonConfigurationError, "path"},
		{"a password in clear text", `{"protocol":"opcua","opcua":{"endpoint":"opc.tcp://127.0.0.1","securityPolicy":"None","identity":"UserName","userName":"u","credentialsKey":"k"}}`, all, driver.ReasonInsecureAuthentication, "clear text"},
		{"a simulated channel of no type", `{"protocol":"simulation","channels":[{"name":"a","address":"a","dataType":"int7"}]}`, all, driver.ReasonConfigurationError, "int7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := c.drivers.Open(specOf(t, c.spec))
			if e, ok := err.(*driver.Error); !ok || e.Reason != c.want || !strings.Contains(e.Error(), c.says) || d != nil {
				t.Errorf("%v, %v, want %s with %q", d, err, c.want, c.says)
			}
		})
	}
}

// Req: P-13
func TestWhatIsDeclaredReachesTheDriver(t *testing.T) {
	dev := modbustest.New("127.0.0.1:0")
	dev.Unit(1).SetHolding(10, 1, 2, 3)
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dev.Close() }()
	d, err := allDrivers((&net.Dialer{}).DialContext).Open(specOf(t, `{"protocol":"modbus","modbus":{"endpoint":"`+dev.Endpoint()+`"},"channels":[
		{"name":"set","address":"holding:99","access":"Write"},
		{"name":"row","address":"holding:10","count":3,"access":"Read","dataType":"int16"},
		{"name":"gone","address":"holding:12","count":2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if answer, err := d.Check(t.Context()); err != nil || answer.Reason != "" {
		t.Errorf("a check reads what may be read: %+v, %v", answer, err)
	}
	list, err := d.Channels(t.Context(), 0)
	if err != nil || len(list.Items) != 3 || list.Items[0].Problem != "" || list.Items[1].Count != 3 || list.Items[1].Problem != "" || list.Items[2].Problem != driver.ReasonConfigurationError {
		t.Errorf("%+v, %v", list, err)
	}
	if got := readableFirst([]driver.Channel{{Name: "w", Access: driver.AccessWrite}, {Name: "v", Access: driver.AccessWrite}, {Name: "r"}}); got[0].Name != "r" || got[1].Name != "w" || got[2].Name != "v" {
		t.Errorf("%v", got)
	}
}
