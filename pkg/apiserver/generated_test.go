package apiserver

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	applytalos "github.com/fieldplane/fieldplane/generated/applyconfiguration/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
)

// Req: A-07. The generator of apply configurations knows the types' schemas by
// the path of their package; under any other name in the OpenAPI it takes every
// kind for untyped, and says nothing.
func TestApplyConfigurationsKnowTheSchemaOfTheirTypes(t *testing.T) {
	client := fake.NewClientset().TalosV1alpha1().TalosMachines("site-a")
	const uuid = "3f1d2c4b-5a69-4788-9c0d-1e2f3a4b5c01"
	apply := applytalos.TalosMachine(uuid, "site-a").WithSpec(applytalos.TalosMachineSpec().
		WithEndpoint("192.0.2.1").
		WithDiskRoles(applytalos.DiskRole().WithRole("data"), applytalos.DiskRole().WithRole("scratch")))
	machine, err := client.Apply(t.Context(), apply, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		t.Fatalf("apply: %v", err)
	}

	extracted, err := applytalos.ExtractTalosMachine(machine, "one")
	if err != nil {
		t.Fatalf("extract: %v", err)
	}
	if extracted.Spec == nil || extracted.Spec.Endpoint == nil || *extracted.Spec.Endpoint != "192.0.2.1" {
		t.Errorf("the manager's own fields were not extracted: %+v", extracted.Spec)
	}

	// An untyped list would be replaced whole; this one is a map by role.
	other := applytalos.TalosMachine(uuid, "site-a").WithSpec(applytalos.TalosMachineSpec().
		WithDiskRoles(applytalos.DiskRole().WithRole("logs")))
	machine, err = client.Apply(t.Context(), other, metav1.ApplyOptions{FieldManager: "two"})
	if err != nil {
		t.Fatalf("apply as another manager: %v", err)
	}
	var roles []string
	for _, role := range machine.Spec.DiskRoles {
		roles = append(roles, role.Role)
	}
	if len(roles) != 3 {
		t.Errorf("disk roles are %v, want those of both managers", roles)
	}
	if _, err := client.Create(t.Context(), &talosv1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "site-a"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("create: %v", err)
	}
}
