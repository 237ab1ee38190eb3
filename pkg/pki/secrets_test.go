package pki

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

const system = "fieldplane-system"

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func servingSecret(t *testing.T, client *fake.Clientset) *corev1.Secret {
	t.Helper()
	secret, err := client.CoreV1().Secrets(system).Get(t.Context(), ServingSecretName, metav1.GetOptions{})
	must(t, err)
	return secret
}

// writes returns what was done to Secrets beyond reading them.
func writes(client *fake.Clientset) []string {
	var verbs []string
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			verbs = append(verbs, action.GetVerb())
		}
	}
	return verbs
}

// Req: A-09
func TestEnsureServing(t *testing.T) {
	names := ServingNames("fieldplane-apiserver", system)
	// What a first start leaves behind is what each case begins with.
	first := fake.NewClientset()
	_, err := EnsureServing(t.Context(), first.CoreV1().Secrets(system), clocktesting.NewFakePassiveClock(begin()), names...)
	must(t, err)
	original := servingSecret(t, first).Data

	for _, tc := range []struct {
		name string
		now  time.Time
		// spoil changes what is stored; nil data means that there is no Secret.
		spoil      func(data map[string][]byte) map[string][]byte
		wantWrites string
		wantErr    string
		sameCA     bool
		sameLeaf   bool
	}{
		{name: "the first start makes a CA and a certificate", now: begin(), spoil: func(map[string][]byte) map[string][]byte { return nil }, wantWrites: "create"},
		{name: "a later start writes nothing", now: begin().Add(24 * time.Hour), sameCA: true, sameLeaf: true},
		{name: "an empty Secret is filled", now: begin(), spoil: func(map[string][]byte) map[string][]byte { return map[string][]byte{} }, wantWrites: "update"},
		{name: "a certificate near its end is renewed under the same CA", now: begin().Add(authority.ServingLifetime * 3 / 4), wantWrites: "update", sameCA: true},
		{name: "an expired certificate is renewed under the same CA", now: begin().Add(2 * authority.ServingLifetime), wantWrites: "update", sameCA: true},
		{name: "a damaged certificate is renewed under the same CA", now: begin(), wantWrites: "update", sameCA: true,
			spoil: func(data map[string][]byte) map[string][]byte { data[certKey] = []byte("x"); return data }},
		{name: "an expired CA is replaced with everything under it", now: begin().Add(authority.Lifetime), wantWrites: "update"},
		{name: "a CA without its key is an error that says what to do", now: begin(), wantErr: "the CA's key: is missing (keys ca.crt and ca.key): restore the Secret, or delete it",
			spoil: func(data map[string][]byte) map[string][]byte { delete(data, caKeyKey); return data }},
		{name: "somebody's own certificate is not overwritten", now: begin(), wantErr: "the CA's certificate: is missing",
			spoil: func(data map[string][]byte) map[string][]byte {
				delete(data, caKeyKey)
				delete(data, caCertKey)
				return data
			}},
		{name: "a damaged CA is an error", now: begin(), wantErr: "secret fieldplane-apiserver-tls: the CA's certificate: is not PEM",
			spoil: func(data map[string][]byte) map[string][]byte { data[caCertKey] = []byte("x"); return data }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			data := maps.Clone(original)
			if tc.spoil != nil {
				data = tc.spoil(data)
			}
			if data != nil {
				must(t, client.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: ServingSecretName}, Data: data}))
			}

			got, err := EnsureServing(t.Context(), client.CoreV1().Secrets(system), clocktesting.NewFakePassiveClock(tc.now), names...)

			if verbs := strings.Join(writes(client), ","); verbs != tc.wantWrites {
				t.Errorf("writes %q, want %q", verbs, tc.wantWrites)
			}
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("want %q, got %v", tc.wantErr, err)
				}
				return
			}
			must(t, err)
			stored := servingSecret(t, client).Data
			if !bytes.Equal(got.Authority.CertificatePEM(), stored[caCertKey]) || !bytes.Equal(got.Serving.CertPEM, stored[certKey]) || !bytes.Equal(got.Serving.KeyPEM, stored[keyKey]) {
				t.Error("what is returned is not what is stored")
			}
			if same := bytes.Equal(original[caCertKey], stored[caCertKey]); same != tc.sameCA {
				t.Errorf("the same CA: %v, want %v", same, tc.sameCA)
			}
			if same := bytes.Equal(original[certKey], stored[certKey]); same != tc.sameLeaf {
				t.Errorf("the same certificate: %v, want %v", same, tc.sameLeaf)
			}
			if why := got.Authority.Due(tc.now, got.Serving, authority.Serving(names...)); why != "" {
				t.Errorf("the certificate does not serve: %s", why)
			}
		})
	}
}

// slowCreate lets nobody create before everybody has seen that there is
// nothing.
type slowCreate struct {
	typedcorev1.SecretInterface
	arrived *sync.WaitGroup
}

func (s *slowCreate) Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error) {
	s.arrived.Done()
	s.arrived.Wait()
	return s.SecretInterface.Create(ctx, secret, opts)
}

// Req: A-09
func TestReplicasThatStartTogetherAgreeOnOneCA(t *testing.T) {
	client := fake.NewClientset()
	clock := clocktesting.NewFakePassiveClock(begin())
	const replicas = 8
	got := make([]*Credentials, replicas)
	var arrived sync.WaitGroup
	arrived.Add(replicas)
	var group sync.WaitGroup
	for i := range replicas {
		group.Go(func() {
			var err error
			if got[i], err = EnsureServing(t.Context(), &slowCreate{client.CoreV1().Secrets(system), &arrived}, clock, "a.svc"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range replicas {
		if got[i] == nil || !bytes.Equal(got[i].Serving.CertPEM, got[0].Serving.CertPEM) {
			t.Fatalf("replica %d has another certificate than replica 0", i)
		}
	}
}

// Req: A-09
func TestALostRaceIsRunAgain(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	expired := begin().Add(2 * authority.ServingLifetime)
	for _, tc := range []struct {
		name    string
		verb    string
		answer  error
		times   int
		wantErr string
	}{
		{name: "after a conflict the winner's Secret is read", verb: "update", answer: apierrors.NewConflict(resource, ServingSecretName, nil), times: 3},
		{name: "after a deletion in between it is made anew", verb: "update", answer: apierrors.NewNotFound(resource, ServingSecretName), times: 1},
		{name: "somebody who always wins is an error in the end", verb: "update", answer: apierrors.NewConflict(resource, ServingSecretName, nil), times: 1000, wantErr: "in a row"},
		{name: "a refusal is no race", verb: "update", answer: apierrors.NewForbidden(resource, ServingSecretName, nil), times: 1, wantErr: "forbidden"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			secrets := client.CoreV1().Secrets(system)
			_, err := EnsureServing(t.Context(), secrets, clocktesting.NewFakePassiveClock(begin()), "a.svc")
			must(t, err)
			left := tc.times
			client.PrependReactor(tc.verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				left--
				return left >= 0, nil, tc.answer
			})
			got, err := EnsureServing(t.Context(), secrets, clocktesting.NewFakePassiveClock(expired), "a.svc")
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("want %q, got %v", tc.wantErr, err)
				}
				return
			}
			must(t, err)
			if !bytes.Equal(got.Serving.CertPEM, servingSecret(t, client).Data[certKey]) {
				t.Error("what is returned is not what is stored")
			}
		})
	}
}

// Req: P-11, P-12, A-10
func TestEnsureNamespaceCertificate(t *testing.T) {
	ca, err := authority.New(begin())
	must(t, err)
	newCA, err := authority.New(begin())
	must(t, err)
	ensure := func(t *testing.T, client *fake.Clientset, ca *authority.Authority, now time.Time) map[string][]byte {
		t.Helper()
		must(t, EnsureNamespaceCertificate(t.Context(), client.CoreV1(), ca, clocktesting.NewFakePassiveClock(now), "site-north"))
		secret, err := client.CoreV1().Secrets("site-north").Get(t.Context(), NamespaceSecretName, metav1.GetOptions{})
		must(t, err)
		return secret.Data
	}
	for _, tc := range []struct {
		name    string
		later   time.Duration
		ca      *authority.Authority
		renewed bool
	}{
		{name: "a certificate that still serves is kept", later: 24 * time.Hour, ca: ca},
		{name: "one with less than a third of its life left is renewed", later: 61 * 24 * time.Hour, ca: ca, renewed: true},
		{name: "one of another CA is renewed", ca: newCA, renewed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			before := ensure(t, client, ca, begin())
			after := ensure(t, client, tc.ca, begin().Add(tc.later))
			if renewed := !bytes.Equal(before[certKey], after[certKey]); renewed != tc.renewed {
				t.Errorf("renewed: %v, want %v", renewed, tc.renewed)
			}
			if why := tc.ca.Due(begin().Add(tc.later), authority.KeyPair{CertPEM: after[certKey], KeyPEM: after[keyKey]}, authority.Namespace("site-north")); why != "" {
				t.Error(why)
			}
			if !bytes.Equal(after[caCertKey], tc.ca.CertificatePEM()) {
				t.Error("it trusts another CA than the one that signed it")
			}
			if _, has := after[caKeyKey]; has || len(after) != 3 {
				t.Errorf("the probes' Secret holds more than ca.crt, tls.crt and tls.key: %v", len(after))
			}
			for _, action := range client.Actions() {
				named, ok := action.(interface{ GetName() string })
				switch action.GetVerb() {
				case "create":
				case "get", "update":
					if ok && named.GetName() != NamespaceSecretName {
						t.Errorf("%s of Secret %s", action.GetVerb(), named.GetName())
					}
				default:
					t.Errorf("%s of secrets needs rights that resourceNames cannot narrow", action.GetVerb())
				}
				if action.GetNamespace() != "site-north" {
					t.Errorf("reaches into namespace %s", action.GetNamespace())
				}
			}
		})
	}
	t.Run("an error names the namespace", func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, fmt.Errorf("refused")
		})
		err := EnsureNamespaceCertificate(t.Context(), client.CoreV1(), ca, clocktesting.NewFakePassiveClock(begin()), "site-north")
		if err == nil || !strings.Contains(err.Error(), "namespace site-north") {
			t.Errorf("got %v", err)
		}
	})
}

// Req: A-09
func TestReadFailuresAreNotTakenForAbsence(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	var secrets typedcorev1.SecretInterface = client.CoreV1().Secrets(system)
	if _, err := EnsureServing(t.Context(), secrets, clocktesting.NewFakePassiveClock(begin()), "a.svc"); err == nil {
		t.Error("want an error")
	}
	if verbs := writes(client); len(verbs) > 0 {
		t.Errorf("wrote %v over what it could not read", verbs)
	}
}
