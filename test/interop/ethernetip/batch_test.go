package ethernetip

import (
	"fmt"
	"net"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13, P-15 (Multiple Service Packets: the other client's are answered as ours are)
func TestManyTagsAtOnceAreWhatEachIsAlone(t *testing.T) {
	d := controller(t)
	for i := range 1100 {
		d.Set(fmt.Sprintf("Tag%04d", i), int32(i))
	}
	host, _, _ := net.SplitHostPort(d.Addr())
	names := []string{"Level", "Counts[3]", "Mixer.Speed", "Small", "Program:Main.Step"}
	for i := range 300 {
		names = append(names, fmt.Sprintf("Tag%04d", i))
	}
	theirs := run(t, order{Host: host, Slot: 2, Connected: true, Group: names})
	if theirs.Error != "" {
		t.Fatal(theirs.Error)
	}
	if services := fmt.Sprintf("%x", d.Services()); len(services) == 0 || len(theirs.Values) != len(names) {
		t.Fatalf("st-ethernet-ip read %d tags by %s", len(theirs.Values), services)
	}

	ours := open(t, d.Endpoint())
	var channels []driver.Channel
	for _, name := range append(names, "NoSuchTag", "Mixer") {
		channels = append(channels, driver.Channel{Name: name, Address: name})
	}
	samples, err := ours.Read(t.Context(), channels)
	if err != nil {
		t.Fatal(err)
	}
	if services := d.Services(); len(services) > 3 {
		t.Errorf("our driver sent %x", services)
	}
	for i, s := range samples {
		alone, err := driver.ReadOne(t.Context(), ours, channels[i])
		if s.Value != alone || (s.Err == nil) != (err == nil) {
			t.Errorf("%s: %+v, alone %v, %v", channels[i].Name, s, alone, err)
		}
		if i < len(names) && fmt.Sprint(s.Value) != fmt.Sprint(theirs.Values[names[i]]) {
			t.Errorf("%s is %v to us and %v to st-ethernet-ip", names[i], s.Value, theirs.Values[names[i]])
		}
		if i >= len(names) && (s.Err == nil || !s.Err.Answered) {
			t.Errorf("%s: %+v, want a refusal", channels[i].Name, s)
		}
	}
}
