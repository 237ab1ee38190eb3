package ethernetiptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/danomagnum/gologix"
)

// client is an independent client of the device: the fixture must be right before it can say that the driver is.
func client(t *testing.T, d *Device, path string) *gologix.Client {
	t.Helper()
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	host, port, err := net.SplitHostPort(d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c := gologix.NewClient(host)
	n, _ := strconv.ParseUint(port, 10, 16)
	c.Controller.Port = uint(n)
	c.Controller.Path, err = gologix.ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	c.SocketTimeout = time.Second
	c.AutoConnect = false
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

// plant is a controller with one of everything.
func plant() *Device {
	d := New("127.0.0.1:0").Route(1, 0)
	motor := d.Define("Motor", Member{Name: "Speed", Type: REAL}, Member{Name: "Running", Type: BOOL}, Member{Name: "Faulted", Type: BOOL}, Member{Name: "Hours", Type: DINT})
	d.Add("Level", REAL).Set("Level", float32(12.5))
	d.Add("Counts", DINT, 10).Set("Counts[3]", int32(-7))
	d.Add("Mixer", motor).Set("Mixer.Speed", float32(1.5)).Set("Mixer.Running", true).Set("Mixer.Hours", int32(99))
	d.Add("Label", STRING).Set("Label", "hello")
	d.Add("Program:Main.Step", INT).Set("Program:Main.Step", int16(4))
	d.AddSystem("__hidden", DINT).Add("Local:1:I", DINT)
	return d
}

// Req: P-13
func TestGologixReadsAndWritesTheFixture(t *testing.T) {
	for _, c := range []struct {
		name   string
		device func(*Device)
	}{
		{"large forward open", func(*Device) {}},
		{"small forward open", func(d *Device) { d.RefuseLarge(true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := plant()
			c.device(d)
			cl := client(t, d, "1,0")
			if err := cl.Connect(); err != nil {
				t.Fatal(err)
			}
			if d.Sessions() != 1 || d.Connections() != 1 {
				t.Errorf("%d sessions and %d connections, want one of each", d.Sessions(), d.Connections())
			}
			id, err := cl.ListIdentity()
			if err != nil || id.ProductName != "1756-L83E/B" || id.SerialNumber != 0x00C0FFEE {
				t.Errorf("identity %+v, %v", id, err)
			}
			var level float32
			if err := cl.Read("Level", &level); err != nil || level != 12.5 {
				t.Errorf("Level is %v, %v", level, err)
			}
			var count int32
			if err := cl.Read("Counts[3]", &count); err != nil || count != -7 {
				t.Errorf("Counts[3] is %v, %v", count, err)
			}
			var step int16
			if err := cl.Read("Program:Main.Step", &step); err != nil || step != 4 {
				t.Errorf("Program:Main.Step is %v, %v", step, err)
			}
			var label string
			if err := cl.Read("Label", &label); err != nil || label != "hello" {
				t.Errorf("Label is %q, %v", label, err)
			}
			if err := cl.Write("Mixer.Hours", int32(100)); err != nil {
				t.Error(err)
			}
			if got := d.Bytes("Mixer.Hours"); !bytes.Equal(got, binary.LittleEndian.AppendUint32(nil, 100)) {
				t.Errorf("Mixer.Hours holds % x after a write of 100", got)
			}
			if err := cl.Disconnect(); err != nil {
				t.Error(err)
			}
			if n := d.Connections(); n != 0 {
				t.Errorf("%d connections after a Forward Close", n)
			}
		})
	}
}

// Req: P-06
func TestGologixListsTheFixturesTags(t *testing.T) {
	d := plant()
	for i := range 1000 {
		d.Add(fmt.Sprintf("Tag%04d", i), DINT)
	}
	cl := client(t, d, "1,0")
	if err := cl.Connect(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Disconnect() }()
	if err := cl.ListAllTags(0); err != nil {
		t.Fatal(err)
	}
	if n := len(cl.KnownTags); n < 1000 {
		t.Errorf("%d tags known, want more than 1000", n)
	}
	if tag := cl.KnownTags["counts"]; len(tag.Array_Order) != 1 || tag.Array_Order[0] != 10 {
		t.Errorf("Counts is %+v, want an array of 10", tag)
	}
	mixer := cl.KnownTags["mixer"]
	// gologix cuts the last letter off a structure's name, so that the name is no part of this.
	if mixer.UDT == nil || len(mixer.UDT.Members) != 5 {
		t.Fatalf("Mixer is %+v, want five members, the hidden one included", mixer.UDT)
	}
	if m := mixer.UDT.Members[3]; m.Name != "Faulted" || m.Info.Info != 1 {
		t.Errorf("the fourth member is %+v, want Faulted at bit 1", m)
	}
	if _, ok := cl.KnownTags["program:main.step"]; !ok {
		t.Error("the tag of the program is not known")
	}
}

func TestAWrongPathAndTooManyConnectionsAreRefused(t *testing.T) {
	d := plant().MaxConnections(1)
	if err := client(t, d, "1,5").Connect(); err == nil {
		t.Error("slot 5 was connected to")
	}
	if err := client(t, d, "1,0").Connect(); err != nil {
		t.Error(err)
	}
	if err := client(t, d, "1,0").Connect(); err == nil {
		t.Error("a second connection was opened where one is allowed")
	}
	if n := d.Opened(); n != 1 {
		t.Errorf("%d connections opened, want 1", n)
	}
}
