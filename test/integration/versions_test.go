package integration

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Req: A-01 (C9)
func TestListsAndWatchesTakeTheVersionsThatTheyMayAndNoOthers(t *testing.T) {
	t.Parallel()
	const exact, notOlder = metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		client := objects(t, k, namespace)
		create(t, k, k.object(namespace, k.name(1)))
		first, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		version := first.GetResourceVersion()
		create(t, k, k.object(namespace, k.name(2)))
		for _, tc := range []struct {
			name    string
			options metav1.ListOptions
			// items are how many a list has at least; refused that it is an invalid request.
			items   int
			refused bool
		}{
			{"the latest", metav1.ListOptions{}, 2, false},
			{"any", metav1.ListOptions{ResourceVersion: "0"}, 0, false},
			{"any, said so", metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: notOlder}, 0, false},
			{"not older than a version", metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: notOlder}, 1, false},
			{"exactly a version", metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: exact}, 1, false},
			{"exactly any", metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: exact}, 0, true},
			{"exactly none", metav1.ListOptions{ResourceVersionMatch: exact}, 0, true},
			{"a match that there is not", metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: "Perhaps"}, 0, true},
			{"initial events of a list", metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: notOlder}, 0, true},
		} {
			list, err := client.List(t.Context(), tc.options)
			switch {
			case tc.refused:
				if !apierrors.IsInvalid(err) {
					t.Errorf("list, %s: %v", tc.name, err)
				}
			case err != nil:
				t.Errorf("list, %s: %v", tc.name, err)
			case len(list.Items) < tc.items || tc.options.ResourceVersionMatch == exact && (len(list.Items) != 1 || list.GetResourceVersion() != version):
				t.Errorf("list, %s: %d items at version %s", tc.name, len(list.Items), list.GetResourceVersion())
			}
		}
		for _, tc := range []struct {
			name    string
			options metav1.ListOptions
		}{
			{"a match without initial events", metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: notOlder}},
			{"initial events without a match", metav1.ListOptions{SendInitialEvents: ptr.To(true)}},
			{"initial events of exactly a version", metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersion: version, ResourceVersionMatch: exact}},
		} {
			if _, err := client.Watch(t.Context(), tc.options); !apierrors.IsInvalid(err) {
				t.Errorf("watch, %s: %v", tc.name, err)
			}
		}
		if k.kind == "Unit" { // it takes 3 s
			future := metav1.ListOptions{ResourceVersion: "999999999", ResourceVersionMatch: notOlder}
			if _, err := client.List(t.Context(), future); !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
				t.Errorf("a list of the future: %v", err)
			}
		}
	})
}

// Req: A-05, T-13 (A10)
func TestASubresourceOfAnObjectThatWasMadeAnewIsNotWrittenForTheOld(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	old := m.pending(t)
	if err := m.admin.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, m.kind, m.kind.object(m.namespace, old.Name))
	now := m.read(t, old.Name)
	old.ResourceVersion = now.ResourceVersion
	old.Spec.AcceptSharedHardware = true
	for subresource, write := range map[string]func() error{
		"approval": func() error {
			_, err := m.admin.UpdateApproval(t.Context(), old.Name, old, metav1.UpdateOptions{})
			return err
		},
		"endpoint": func() error {
			_, err := m.admin.UpdateEndpoint(t.Context(), old.Name, old, metav1.UpdateOptions{})
			return err
		},
		"status": func() error {
			_, err := m.server(t).UpdateStatus(t.Context(), old, metav1.UpdateOptions{})
			return err
		},
		"the main resource": func() error { _, err := m.admin.Update(t.Context(), old, metav1.UpdateOptions{}); return err },
	} {
		if err := write(); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", subresource, err)
		}
	}
	if after := m.read(t, old.Name); after.ResourceVersion != now.ResourceVersion {
		t.Errorf("it is written: %+v", after)
	}
}
