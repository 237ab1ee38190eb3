package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

// installation is a server with its Secret, and a clock.
type installation struct {
	t      *testing.T
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	*Keeper
}

func startKeeper(t *testing.T, client *fake.Clientset, clock *clocktesting.FakeClock) *installation {
	t.Helper()
	names := ServingNames("fieldplane-apiserver", system)
	secrets := client.CoreV1().Secrets(system)
	credentials, err := EnsureServing(t.Context(), secrets, clock, names...)
	must(t, err)
	serving, err := NewServingCertificate(credentials.Serving)
	must(t, err)
	return &installation{t: t, client: client, clock: clock, Keeper: &Keeper{
		Secrets: secrets, Names: names, Clock: clock, Credentials: credentials, Serving: serving,
	}}
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	return startKeeper(t, fake.NewClientset(), clocktesting.NewFakeClock(begin()))
}

// pass lets time pass and the keeper look once.
func (i *installation) pass(d time.Duration) {
	i.t.Helper()
	i.clock.Step(d)
	must(i.t, i.keep(i.t.Context()))
}

func (i *installation) served() []byte {
	cert, _ := i.Serving.CurrentCertKeyContent()
	return cert
}

func (i *installation) annotate() {
	i.t.Helper()
	secret := servingSecret(i.t, i.client)
	secret.Annotations = map[string]string{RotateAnnotation: "please", "kept": "yes"}
	_, err := i.Secrets.Update(i.t.Context(), secret, metav1.UpdateOptions{})
	must(i.t, err)
}

func certificates(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return certs
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		certs = append(certs, cert)
	}
}

// verifies tells whether somebody who believes the bundle believes the certificate.
func verifies(t *testing.T, bundle, cert []byte, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := certificates(t, cert)[0].Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// told counts that a listener was told.
type told int

func (n *told) Enqueue() { *n++ }

// Req: A-09
func TestARunningServerRenewsItsCertificateAtTwoThirdsOfItsLife(t *testing.T) {
	i := newInstallation(t)
	listener := new(told)
	i.Serving.AddListener(listener)
	first, ca := i.served(), i.Credentials.Authority.CertificatePEM()
	i.pass(authority.ServingLifetime*2/3 - time.Hour)
	if !bytes.Equal(i.served(), first) || *listener != 0 {
		t.Fatal("it was renewed before that")
	}
	i.pass(2 * time.Hour)
	second := i.served()
	if bytes.Equal(second, first) || *listener != 1 {
		t.Fatalf("it was not renewed; the listener was told %d times", *listener)
	}
	if err := verifies(t, ca, second, i.clock.Now()); err != nil || !bytes.Equal(i.Credentials.Authority.CertificatePEM(), ca) {
		t.Errorf("it is not of the same CA: %v", err)
	}
	if stored := servingSecret(t, i.client).Data[certKey]; !bytes.Equal(stored, second) {
		t.Error("it is not the one that is stored")
	}

	t.Run("and serves with what another replica has made", func(t *testing.T) {
		other := startKeeper(t, i.client, i.clock)
		i.clock.Step(authority.ServingLifetime)
		must(t, other.keep(t.Context()))
		if bytes.Equal(other.served(), second) {
			t.Fatal("the other one made none")
		}
		writesBefore := len(writes(i.client))
		must(t, i.keep(t.Context()))
		if !bytes.Equal(i.served(), other.served()) || len(writes(i.client)) != writesBefore {
			t.Error("two replicas serve with different certificates")
		}
	})
}

// Req: A-09
func TestTheCAIsSucceededInStepsWithBothTrustedInBetween(t *testing.T) {
	for name, begin := range map[string]func(i *installation){
		"when a third of its life is left": func(i *installation) { i.clock.Step(authority.Lifetime*2/3 + time.Hour) },
		"when somebody asks for it":        func(i *installation) { i.annotate() },
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.pass(24 * time.Hour)
			former := i.Credentials.Authority.CertificatePEM()
			if bundle := i.Credentials.Authority.TrustPEM(); !bytes.Equal(bundle, former) {
				t.Fatal("more than one CA is trusted although nothing goes on")
			}
			begin(i)
			i.pass(0)

			trusted := i.Credentials.Authority.TrustPEM()
			if n := len(certificates(t, trusted)); n != 2 || !bytes.Equal(i.Credentials.Authority.CertificatePEM(), former) {
				t.Fatalf("%d CAs are trusted, and the former one has to sign", n)
			}
			secret := servingSecret(t, i.client)
			if _, asked := secret.Annotations[RotateAnnotation]; asked || len(secret.Data[nextCertKey]) == 0 {
				t.Errorf("the Secret is annotated %v", secret.Annotations)
			}
			for range int(Overlap/time.Hour) - 1 {
				i.pass(time.Hour)
			}
			if !bytes.Equal(i.Credentials.Authority.CertificatePEM(), former) {
				t.Fatal("the new CA signs before everybody trusts it")
			}
			i.pass(time.Hour)

			next := i.Credentials.Authority.CertificatePEM()
			if bytes.Equal(next, former) {
				t.Fatal("the new CA does not sign")
			}
			if !bytes.Equal(i.Credentials.Authority.TrustPEM(), trusted) {
				t.Error("what is trusted changes with who signs")
			}
			if err := verifies(t, next, i.served(), i.clock.Now()); err != nil {
				t.Errorf("the serving certificate: %v", err)
			}
			data := servingSecret(t, i.client).Data
			if !bytes.Equal(data[caCertKey], next) || !bytes.Equal(data[formerCertKey], former) || len(data[nextCertKey])+len(data[nextKeyKey]) > 0 {
				t.Errorf("the Secret has the keys %q", slices.Sorted(maps.Keys(data)))
			}
			// What may sign is worth keeping nowhere.
			for key, value := range data {
				if key != caKeyKey && key != keyKey && bytes.Contains(value, []byte("PRIVATE KEY")) {
					t.Errorf("%s holds a private key", key)
				}
			}
			i.pass(Overlap - time.Minute)
			if !bytes.Equal(i.Credentials.Authority.TrustPEM(), trusted) {
				t.Error("the former CA was forgotten too early")
			}
			i.pass(2 * time.Minute)
			if !bytes.Equal(i.Credentials.Authority.TrustPEM(), next) {
				t.Error("the former CA is still trusted")
			}
			if keys := slices.Sorted(maps.Keys(servingSecret(t, i.client).Data)); !slices.Equal(keys, []string{caCertKey, caKeyKey, certKey, keyKey}) {
				t.Errorf("the Secret is left with the keys %q", keys)
			}
		})
	}
}

// Req: A-09
func TestASecondRotationIsNotBegunWhileOneIsUnderWay(t *testing.T) {
	i := newInstallation(t)
	i.annotate()
	i.pass(0)
	next := servingSecret(t, i.client).Data[nextCertKey]
	i.annotate()
	i.pass(time.Minute)
	secret := servingSecret(t, i.client)
	if !bytes.Equal(secret.Data[nextCertKey], next) || len(next) == 0 {
		t.Error("another one was made")
	}
	if _, asked := secret.Annotations[RotateAnnotation]; asked || secret.Annotations["kept"] != "yes" {
		t.Errorf("annotations %v", secret.Annotations)
	}
}

// Req: A-09. A server that was away when the next CA became known has told nobody of it.
func TestTheNextCASignsOnlyAfterThisServerHasToldEverybody(t *testing.T) {
	i := newInstallation(t)
	i.annotate()
	i.pass(0)
	former := i.Credentials.Authority.CertificatePEM()
	i.clock.Step(30 * 24 * time.Hour)

	restarted := startKeeper(t, i.client, i.clock)
	if !bytes.Equal(restarted.Credentials.Authority.CertificatePEM(), former) || len(certificates(t, restarted.Credentials.Authority.TrustPEM())) != 2 {
		t.Fatal("a start does not trust both, with the former one signing")
	}
	restarted.pass(0)
	restarted.pass(spreading - time.Second)
	if !bytes.Equal(restarted.Credentials.Authority.CertificatePEM(), former) {
		t.Error("the next one signs although nobody can know of it")
	}
	restarted.pass(2 * time.Second)
	if bytes.Equal(restarted.Credentials.Authority.CertificatePEM(), former) {
		t.Error("the next one does not sign")
	}
}

// Req: A-09. Everybody believes everybody at every minute of a rotation, with servers that restart, a leader that renews the
// namespaces every 10 minutes, and kubelets that take 2 minutes to put that into pods.
func TestNobodyIsCutOffDuringARotation(t *testing.T) {
	i := newInstallation(t)
	i.pass(time.Hour)
	ensure := func() map[string][]byte {
		must(t, EnsureNamespaceCertificate(t.Context(), i.client.CoreV1(), i.Credentials.Authority, i.clock, "site-north"))
		secret, err := i.client.CoreV1().Secrets("site-north").Get(t.Context(), NamespaceSecretName, metav1.GetOptions{})
		must(t, err)
		return maps.Clone(secret.Data)
	}
	namespace := ensure()
	pod, published := namespace, i.Credentials.Authority.TrustPEM()
	controllers := authority.NewControllerClient(i.Credentials.Authority, i.clock)
	i.annotate()
	signers := map[string]bool{}
	for minute := range int(2*Overlap/time.Minute) + 60 {
		// Whatever was in place a moment ago meets whatever the server does now.
		i.pass(time.Minute)
		if minute%997 == 500 {
			restarted := startKeeper(t, i.client, i.clock)
			i.Keeper, controllers = restarted.Keeper, authority.NewControllerClient(restarted.Credentials.Authority, i.clock)
		}
		now := i.clock.Now()
		signers[string(i.Credentials.Authority.CertificatePEM())] = true
		if err := verifies(t, published, i.served(), now); err != nil {
			t.Fatalf("minute %d: the aggregator does not believe the server: %v", minute, err)
		}
		config := controllers.TLSConfig("site-north")
		shown, err := config.GetClientCertificate(nil)
		must(t, err)
		shownPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: shown.Certificate[0]})
		if err := verifies(t, pod[caCertKey], shownPEM, now); err != nil {
			t.Fatalf("minute %d: a probe does not believe the controllers: %v", minute, err)
		}
		if err := verifies(t, i.Credentials.Authority.TrustPEM(), pod[certKey], now); err != nil {
			t.Fatalf("minute %d: the controllers do not believe a probe: %v", minute, err)
		}
		// Peers of one namespace: one pod has been refreshed, the other not yet.
		if err := verifies(t, pod[caCertKey], namespace[certKey], now); err != nil {
			t.Fatalf("minute %d: a probe does not believe a newer one: %v", minute, err)
		}
		published = i.Credentials.Authority.TrustPEM()
		switch minute % 10 {
		case 2:
			pod = namespace
		case 0:
			namespace = ensure()
		}
	}
	if len(signers) != 2 || len(certificates(t, i.Credentials.Authority.TrustPEM())) != 1 {
		t.Errorf("%d CAs have signed, and %d are trusted", len(signers), len(certificates(t, i.Credentials.Authority.TrustPEM())))
	}
}

// Req: A-09
func TestASecretThatIsDeletedUnderARunningServerIsPutBack(t *testing.T) {
	i := newInstallation(t)
	i.pass(time.Minute)
	before := servingSecret(t, i.client).Data
	must(t, i.Secrets.Delete(t.Context(), ServingSecretName, metav1.DeleteOptions{}))
	i.pass(time.Minute)
	if after := servingSecret(t, i.client).Data; !maps.EqualFunc(before, after, bytes.Equal) {
		t.Errorf("the Secret has the keys %q, and had %q", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
}

// Req: A-09
func TestWhatCannotBeReadOfASuccessionDoesNotStopTheServer(t *testing.T) {
	for name, spoil := range map[string]func(data map[string][]byte){
		"the next CA is damaged, and nobody asks": func(data map[string][]byte) { data[nextCertKey] = []byte("x") },
		"the former CA is damaged": func(data map[string][]byte) {
			data[formerCertKey], data[formerUntilKey] = []byte("x"), []byte("2026-03-02T12:00:00Z")
		},
		"nobody knows until when to trust a former": func(data map[string][]byte) { data[formerCertKey] = data[caCertKey] },
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			secret := servingSecret(t, i.client)
			spoil(secret.Data)
			_, err := i.Secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
			must(t, err)
			i.pass(time.Minute)
			if trusted := i.Credentials.Authority.TrustPEM(); !bytes.Equal(trusted, i.Credentials.Authority.CertificatePEM()) {
				t.Errorf("%d CAs are trusted", len(certificates(t, trusted)))
			}
		})
	}
}

// Req: A-09
func TestTheKeeperGoesOnAfterAFailureAndStopsWhenToldTo(t *testing.T) {
	i := newInstallation(t)
	first := i.served()
	refused := make(chan struct{}, 100)
	var fails atomic.Bool
	fails.Store(true)
	i.client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if fails.Load() {
			refused <- struct{}{}
			return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return false, nil, nil
	})
	renewed := make(chan struct{}, 100)
	i.client.PrependReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !strings.Contains(string(action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).Data[certKey]), string(first)) {
			renewed <- struct{}{}
		}
		return false, nil, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	<-refused
	for !i.clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	i.clock.Step(keepPeriod)
	<-refused
	fails.Store(false)
	i.clock.Step(authority.ServingLifetime * 3 / 4)
	<-renewed
	stop()
	<-ended
	if bytes.Equal(i.served(), first) {
		t.Error("it serves with the former certificate")
	}
}
