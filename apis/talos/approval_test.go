package talos

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
)

// Every member of a machine's spec is either part of what was approved, or said here not to be, and why. A new member that
// nobody decided about could be changed on an approved machine without the verb.
//
// Req: T-13
func TestEveryMemberOfASpecIsPartOfAnApprovalOrDecidedNotToBe(t *testing.T) {
	exempt := map[string]string{
		"ClusterRef": "cannot be changed",
		"Identity":   "cannot be changed",
		"Approved":   "is the approval",
		"Rejected":   "cannot be set on an approved machine",
		"Endpoint":   "is guarded by itself, and by the plugin until configuration was sent",
		"NodeLabels": "T-13 leaves it out",
		"NodeTaints": "T-13 leaves it out",
	}
	acceptance := []string{"AcceptedFingerprint", "AcceptUnverifiedFingerprint", "AcceptSharedHardware"}
	full := TalosMachineSpec{
		ClusterRef: ClusterReference{Name: "x"}, Identity: MachineIdentity{UUID: "x"}, Role: RoleWorker, Approved: ptr.To(true),
		Rejected: &MachineRejection{Reason: "x"}, Endpoint: "x", NodeLabels: map[string]string{"x": "x"}, NodeTaints: []NodeTaint{{Key: "x"}},
		Install: &MachineInstall{Disk: "x"}, DiskRoles: []DiskRole{{Role: "x"}}, Network: &MachineNetwork{Hostname: "x"}, ConfigPatches: []string{"x"},
		AcceptedFingerprint: "x", AcceptUnverifiedFingerprint: true, AcceptSharedHardware: true,
	}
	kind := reflect.TypeOf(full)
	for i := range kind.NumField() {
		name := kind.Field(i).Name
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Errorf("%s is new: set it above, and decide whether it is part of an approval", name)
			continue
		}
		changed := *full.DeepCopy()
		reflect.ValueOf(&changed).Elem().Field(i).SetZero()
		var want, accepted []string
		path := "spec." + strings.ToLower(name[:1]) + name[1:]
		if exempt[name] == "" {
			want = []string{path}
		}
		if slices.Contains(acceptance, name) {
			accepted = []string{path}
		}
		for _, pair := range [][2]*TalosMachineSpec{{&full, &changed}, {&changed, &full}} {
			if have := ChangedApproval(pair[0], pair[1]); !slices.Equal(have, want) {
				t.Errorf("%s: approval says %q, want %q", name, have, want)
			}
			if have := ChangedAcceptance(pair[0], pair[1]); !slices.Equal(have, accepted) {
				t.Errorf("%s: acceptance says %q, want %q", name, have, accepted)
			}
		}
	}
	if have := ChangedApproval(&full, full.DeepCopy()); len(have) > 0 {
		t.Errorf("a copy differs in %q", have)
	}
	if have := ChangedApproval(&TalosMachineSpec{}, &TalosMachineSpec{DiskRoles: []DiskRole{}, ConfigPatches: []string{}}); len(have) > 0 {
		t.Errorf("empty lists differ from none in %q", have)
	}
}

func TestOnlyTrueIsApproved(t *testing.T) {
	for _, tc := range []struct {
		approved *bool
		want     bool
	}{{nil, false}, {ptr.To(false), false}, {ptr.To(true), true}} {
		if have := IsApproved(&TalosMachine{Spec: TalosMachineSpec{Approved: tc.approved}}); have != tc.want {
			t.Errorf("%v: %v", tc.approved, have)
		}
	}
}
