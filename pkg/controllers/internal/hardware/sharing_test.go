package hardware

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const (
	swappedUUID = "521c7a6f-1e3b-8f4d-9a60-0cc47ab01056" // uuid in the other byte order
	otherUUID   = "0c1d2e3f-8899-4aab-bccd-ddeeff001122"
)

// registeredAt is a machine of a second after the epoch.
func registeredAt(second int64, name, serial string, macs ...string) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))},
		Spec:       v1alpha1.TalosMachineSpec{Identity: v1alpha1.MachineIdentity{UUID: name, Serial: serial, MACAddresses: macs}},
	}
}

// Req: T-05, T-09
func TestOfTwoMachinesThatShareHardwareTheLaterOneIsTold(t *testing.T) {
	const macA, macB = "b4:45:06:00:00:01", "b4:45:06:00:00:02"

	elsewhere := registeredAt(1, otherUUID, "S1", macA)
	elsewhere.Namespace = "site-b"

	for _, c := range []struct {
		name    string
		machine *v1alpha1.TalosMachine
		others  []*v1alpha1.TalosMachine
		want    []string
	}{
		{"nothing in common", registeredAt(9, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "T1", macB)}, nil},
		{"the serial of an earlier one", registeredAt(9, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "S1", macB)},
			[]string{`the serial number "S1" of machine ` + otherUUID}},
		{"a MAC of an earlier one", registeredAt(9, uuid, "S1", macA, macB), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "T1", macB)},
			[]string{"the MAC address " + macB + " of machine " + otherUUID}},
		{"serial and MACs", registeredAt(9, uuid, "S1", macA, macB), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "S1", macB, macA)},
			[]string{`the serial number "S1" and the MAC addresses ` + macA + ", " + macB + " of machine " + otherUUID}},
		{"the UUID in the other byte order", registeredAt(9, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(1, swappedUUID, "T1", macB)},
			[]string{"the UUID, with its first three fields in the other byte order, of machine " + swappedUUID}},
		{"the other one is later", registeredAt(1, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(9, otherUUID, "S1", macA)}, nil},
		{"in one second the name decides", registeredAt(1, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "S1", macB)},
			[]string{`the serial number "S1" of machine ` + otherUUID}},
		{"and not the other way round", registeredAt(1, otherUUID, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(1, uuid, "S1", macB)}, nil},
		{"itself", registeredAt(1, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(1, uuid, "S1", macA)}, nil},
		{"a machine of another namespace", registeredAt(9, uuid, "S1", macA), []*v1alpha1.TalosMachine{elsewhere}, nil},
		{"no serial on both", registeredAt(9, uuid, "", macA), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "", macB)}, nil},
		{"a placeholder as serial on both", registeredAt(9, uuid, "Default string", macA), []*v1alpha1.TalosMachine{registeredAt(1, otherUUID, "Default string", macB)}, nil},
		{"several, the earliest first", registeredAt(9, uuid, "S1", macA), []*v1alpha1.TalosMachine{registeredAt(3, swappedUUID, "S1"), registeredAt(2, otherUUID, "T1", macA)},
			[]string{"the MAC address " + macA + " of machine " + otherUUID,
				`the serial number "S1" and the UUID, with its first three fields in the other byte order, of machine ` + swappedUUID}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, one := range EarlierSharers(c.machine, c.others) {
				got = append(got, one.String())
			}

			if !slices.Equal(got, c.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestManySharersAreNotAllNamed(t *testing.T) {
	var with []Sharing
	for n := range 40 {
		with = append(with, Sharing{Machine: fmt.Sprintf("m%02d", n), Serial: "S1"})
	}

	if got := ExplainSharing(with); !strings.Contains(got, "m07") || strings.Contains(got, "m08") || !strings.HasSuffix(got, "; and parts of others") {
		t.Error(got)
	}

	many := Sharing{Machine: "m", MACs: []string{"a", "b", "c", "d", "e"}}
	if got := many.String(); got != "5 MAC addresses, such as a, of machine m" {
		t.Error(got)
	}
}

// Whoever shares hardware has a key in common and the other way round, so that an index finds what the comparison finds;
// and of each pair exactly one is told.
// Req: T-09
func TestTheIndexFindsWhatTheComparisonFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }

	for range 5000 {
		var pair [2]*v1alpha1.TalosMachine

		for i := range pair {
			pair[i] = registeredAt(random.Int64N(2), pick(uuid, swappedUUID, otherUUID), pick("", "S1", "s1", "None"))
			for range random.IntN(3) {
				pair[i].Spec.Identity.MACAddresses = append(pair[i].Spec.Identity.MACAddresses, pick("b4:45:06:00:00:01", "b4:45:06:00:00:02", "b4:45:06:00:00:03"))
			}
		}

		a, b := pair[0], pair[1]
		if a.Name == b.Name {
			continue
		}

		common := slices.ContainsFunc(SharedParts(a), func(key string) bool { return slices.Contains(SharedParts(b), key) })
		told := len(EarlierSharers(a, pair[:])) + len(EarlierSharers(b, pair[:]))

		if want := map[bool]int{true: 1, false: 0}[common]; told != want {
			t.Fatalf("%d told, common key %t:\n%+v\n%+v", told, common, a, b)
		}
	}
}
