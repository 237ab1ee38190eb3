package pki

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

func apiService(name string, spec apiregistrationv1.APIServiceSpec) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kept": "yes"}}, Spec: spec}
}

// Req: A-09
func TestPublishCABundle(t *testing.T) {
	ca := []byte("-----BEGIN CERTIFICATE-----\n")
	for _, tc := range []struct {
		name    string
		spec    apiregistrationv1.APIServiceSpec
		patches int
	}{
		{name: "an APIService without a CA gets it", patches: 1},
		{name: "another CA is replaced", spec: apiregistrationv1.APIServiceSpec{CABundle: []byte("other")}, patches: 1},
		{name: "one that has it is not written", spec: apiregistrationv1.APIServiceSpec{CABundle: ca}},
		{name: "skipping verification is undone", spec: apiregistrationv1.APIServiceSpec{InsecureSkipTLSVerify: true}, patches: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.spec.Group, tc.spec.VersionPriority = "physical.fieldplane.dev", 15
			client := fake.NewClientset(apiService("v1alpha1.physical.fieldplane.dev", tc.spec))
			apiServices := client.ApiregistrationV1().APIServices()
			for range 2 {
				must(t, PublishCABundle(t.Context(), apiServices, []string{"v1alpha1.physical.fieldplane.dev"}, ca))
			}
			patches := 0
			for _, action := range client.Actions() {
				switch action.GetVerb() {
				case "patch":
					patches++
				case "get":
				default:
					t.Errorf("%s needs more rights than get and patch", action.GetVerb())
				}
			}
			if patches != tc.patches {
				t.Errorf("%d patches, want %d", patches, tc.patches)
			}
			got, err := apiServices.Get(t.Context(), "v1alpha1.physical.fieldplane.dev", metav1.GetOptions{})
			must(t, err)
			if !bytes.Equal(got.Spec.CABundle, ca) || got.Spec.InsecureSkipTLSVerify {
				t.Errorf("caBundle %q, insecureSkipTLSVerify %v", got.Spec.CABundle, got.Spec.InsecureSkipTLSVerify)
			}
			if got.Spec.Group != "physical.fieldplane.dev" || got.Spec.VersionPriority != 15 || got.Annotations["kept"] != "yes" {
				t.Errorf("something else was changed: %+v", got)
			}
		})
	}
	t.Run("a missing one is named, and does not keep the others from theirs", func(t *testing.T) {
		client := fake.NewClientset(apiService("second", apiregistrationv1.APIServiceSpec{}))
		apiServices := client.ApiregistrationV1().APIServices()
		err := PublishCABundle(t.Context(), apiServices, []string{"first", "second"}, ca)
		if err == nil || !strings.Contains(err.Error(), "APIService first") {
			t.Errorf("got %v", err)
		}
		if got, err := apiServices.Get(t.Context(), "second", metav1.GetOptions{}); err != nil || !bytes.Equal(got.Spec.CABundle, ca) {
			t.Errorf("second: %v %v", got, err)
		}
	})
}

// Req: A-09
func TestAnnounceReady(t *testing.T) {
	client := fake.NewClientset(apiService("first", apiregistrationv1.APIServiceSpec{CABundle: []byte("ca")}), apiService("second", apiregistrationv1.APIServiceSpec{}))
	apiServices := client.ApiregistrationV1().APIServices()
	seen := map[string]bool{}
	for i := range 2 {
		must(t, AnnounceReady(t.Context(), apiServices, []string{"first", "second"}, begin().Add(time.Duration(i)*time.Millisecond)))
		for _, name := range []string{"first", "second"} {
			got, err := apiServices.Get(t.Context(), name, metav1.GetOptions{})
			must(t, err)
			at := got.Annotations[ReadyAtAnnotation]
			if _, err := time.Parse(time.RFC3339Nano, at); err != nil || seen[name+at] {
				t.Errorf("%s: %q is no new time: %v", name, at, err)
			}
			seen[name+at] = true
			if got.Annotations["kept"] != "yes" || (name == "first" && string(got.Spec.CABundle) != "ca") {
				t.Errorf("%s: something else was changed: %+v", name, got)
			}
		}
	}
}
