package chain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua/opcuatest"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
)

// ofProtocol is one device of a protocol other than Modbus, of its own for a test.
type ofProtocol struct {
	plant *plant.Plant
	spec  v1alpha1.IOModuleSpec
	// vendor is what it says of itself, and some are channels that it has among others.
	vendor string
	some   []string
}

// encrypted is an OPC UA connection that pins the plant's certificate.
func encrypted(endpoint string) *v1alpha1.OPCUAConnection {
	return &v1alpha1.OPCUAConnection{
		Endpoint: endpoint, SecurityPolicy: v1alpha1.OPCUASecurityPolicyBasic256Sha256,
		SecurityMode: v1alpha1.OPCUASecurityModeSignAndEncrypt, TrustedThumbprint: opcuatest.Thumbprint,
	}
}

// protocols make a device of each protocol, as the example plant has them.
func protocols() map[string]func(*testing.T) ofProtocol {
	example := plant.Example()
	opcua := func(secure bool) func(*testing.T) ofProtocol {
		return func(t *testing.T) ofProtocol {
			spec := example.OPCUA[0]
			spec.Name, spec.Address = "device", fmt.Sprintf("127.0.78.%d:4840", lastDevice.Add(1))
			p := startPlant(t, plant.Spec{OPCUA: []plant.OPCUASpec{spec}})
			connection := encrypted(p.OPCUA("device").Endpoint())
			if !secure {
				connection = &v1alpha1.OPCUAConnection{Endpoint: connection.Endpoint, SecurityPolicy: v1alpha1.OPCUASecurityPolicyNone}
			}
			return ofProtocol{
				plant: p, spec: v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolOPCUA, OPCUA: connection},
				vendor: "fieldplane", some: []string{"Press/Force", "Press/Force/Setpoint", "Press/Cylinders/4/Valve/Open"},
			}
		}
	}
	return map[string]func(*testing.T) ofProtocol{
		"opcua":           opcua(false),
		"opcua-encrypted": opcua(true),
		"ethernetip": func(t *testing.T) ofProtocol {
			spec := example.EtherNetIP[0]
			spec.Name, spec.Address = "device", fmt.Sprintf("127.0.78.%d:44818", lastDevice.Add(1))
			p := startPlant(t, plant.Spec{EtherNetIP: []plant.EtherNetIPSpec{spec}})
			return ofProtocol{
				plant: p, spec: v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolEtherNetIP, Ethernetip: &v1alpha1.EtherNetIPConnection{
					Endpoint: p.EtherNetIP("device").Endpoint(), Path: "1,0",
				}},
				vendor: "Rockwell", some: []string{"Speed", "Axis6_Fault"},
			}
		},
	}
}

// declare declares a module of any protocol.
func (s site) declare(t *testing.T, name string, spec v1alpha1.IOModuleSpec) {
	t.Helper()
	_, err := s.modules.Create(t.Context(), &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	must(t, err)
}

// page reads a page of a module's channels, as client.
func (s site) page(ctx context.Context, client versioned.Interface, name string, limit int, next string) (*v1alpha1.IOModuleChannels, error) {
	page := &v1alpha1.IOModuleChannels{}
	request := client.PhysicalV1alpha1().RESTClient().Get().Namespace(s.name).Resource("iomodules").Name(name).SubResource("channels")
	if limit > 0 {
		request = request.Param("limit", strconv.Itoa(limit))
	}
	if next != "" {
		request = request.Param("continue", next)
	}
	return page, request.Do(ctx).Into(page)
}

// counted waits until a module's channels are known, and returns how many there are.
func (s site) counted(t *testing.T, name string) int {
	t.Helper()
	module := until(t, onlineLimit, name, s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.ChannelCount == nil || *m.Status.ChannelCount == 0 || m.Status.Identity == nil {
			return fmt.Sprintf("its channels or its identity are not known: %v, %+v", m.Status.ChannelCount, m.Status.Identity)
		}
		return ""
	})
	return int(*module.Status.ChannelCount)
}

// Req: P-01, P-06, P-13, P-17
func TestADeviceOfEachProtocolIsOnlineAndItsChannelsAreListedInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	viewer := bind(t, s.name, "viewer."+s.name, "fieldplane-view")
	for name, device := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := device(t)
			s.declare(t, name, d.spec)
			online := s.online(t, firstLimit, name).Status
			if online.Health != v1alpha1.HealthNormal || online.ProbePodName != probeName {
				t.Errorf("not a healthy module: %+v", online)
			}
			count := s.counted(t, name)
			module, err := s.modules.Get(t.Context(), name, metav1.GetOptions{})
			must(t, err)
			if identity := module.Status.Identity; !strings.Contains(identity.Vendor, d.vendor) || identity.Product == "" {
				t.Errorf("identity is %+v", identity)
			}

			const limit = 7
			var names []string
			addresses := map[string]bool{}
			next, pages := "", 0
			for {
				page, err := s.page(t.Context(), viewer, name, limit, next)
				must(t, err)
				if len(page.Items) == 0 || len(page.Items) > limit || page.Truncated || page.DiscoveredAt == nil {
					t.Fatalf("page %d: %+v", pages, page)
				}
				for _, item := range page.Items {
					names, addresses[item.Address] = append(names, item.Name), true
				}
				left := int64(count - len(names))
				if have := page.RemainingItemCount; left > 0 && (have == nil || *have != left) {
					t.Errorf("page %d leaves %v, not %d", pages, have, left)
				}
				pages++
				if next = page.Continue; next == "" {
					break
				}
			}
			if len(names) != count || len(addresses) != count || pages != (count+limit-1)/limit {
				t.Errorf("%d channels of %d addresses on %d pages, and channelCount is %d", len(names), len(addresses), pages, count)
			}
			for _, want := range d.some {
				if !slices.Contains(names, want) {
					t.Errorf("no %s among %q", want, names)
				}
			}
			whole, err := s.page(t.Context(), viewer, name, 0, "")
			must(t, err)
			if len(whole.Items) != count || whole.Continue != "" {
				t.Errorf("%d channels without a limit, continue %q", len(whole.Items), whole.Continue)
			}
			if _, err := s.page(t.Context(), viewer, name, limit, "nonsense"); !apierrors.IsBadRequest(err) && !apierrors.IsResourceExpired(err) {
				t.Errorf("a continue that nobody gave: %v", err)
			}

			text, err := kubectlPlugin(t, "channels", name, "-n", s.name, "--no-headers")
			must(t, err)
			if lines := strings.Count(text, "\n"); lines != count || !containsAll(text, d.some...) {
				t.Errorf("kubectl fieldplane channels prints %d lines for %d channels:\n%s", lines, count, text)
			}
		})
	}
}

// Req: P-06, P-07, P-13, P-16
func TestADeviceOfEachProtocolThatStopsIsFaultWithin5sAndOnlineWithin15sAfterItIsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for protocol, device := range protocols() {
		for fault, reason := range map[string]string{"closed": "Refused", "silent": "Timeout", "slow": "Timeout"} {
			name := protocol + "-" + fault
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := device(t)
				s.declare(t, name, d.spec)
				s.online(t, firstLimit, name)
				// Not while it is looked through: that a module's channels are known is for the other test.
				count := s.counted(t, name)

				must(t, d.plant.Fault("device", fault))
				fault := s.verdict(t, faultLimit, name, v1alpha1.ModuleFault, reason).Status
				if fault.Health != v1alpha1.HealthFailure || condition(fault.Conditions, "Ready") != "False "+reason || fault.Message == "" {
					t.Errorf("not a failed module: %+v", fault)
				}
				must(t, d.plant.Heal("device"))
				s.online(t, onlineLimit, name)
				if again := s.counted(t, name); again != count {
					t.Errorf("%d channels before, %d after", count, again)
				}
			})
		}
	}
}

// Req: P-13
func TestAServerWhoseCertificateIsNotPinnedIsFaultAndItsThumbprintIsWhatOnePins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := protocols()["opcua-encrypted"](t)
	for name, pinned := range map[string]string{"another-is-pinned": strings.Repeat("ab", 32), "none-is-pinned": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := d.spec
			spec.OPCUA = encrypted(spec.OPCUA.Endpoint)
			spec.OPCUA.TrustedThumbprint = pinned
			s.declare(t, name, spec)
			fault := s.verdict(t, firstLimit, name, v1alpha1.ModuleFault, "CertificateUntrusted").Status
			if !strings.Contains(fault.Message, opcuatest.Thumbprint) || condition(fault.Conditions, "Ready") != "False CertificateUntrusted" {
				t.Errorf("the thumbprint is not told: %+v", fault)
			}
			s.change(t, name, func(spec *v1alpha1.IOModuleSpec) { spec.OPCUA.TrustedThumbprint = opcuatest.Thumbprint })
			s.online(t, onlineLimit, name)
		})
	}
}

// Req: P-13, P-18
func TestAChangedCredentialIsUsedWithoutMakingThePodAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const secret = "fieldplane-device-credentials"
	secrets := env.Host().CoreV1().Secrets(s.name)
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{"press": []byte("outdated-password")}}
	_, err := secrets.Create(t.Context(), credentials, metav1.CreateOptions{})
	must(t, err)
	p := startPlant(t, plant.Spec{OPCUA: []plant.OPCUASpec{{
		Name: "device", Address: fmt.Sprintf("127.0.78.%d:4840", lastDevice.Add(1)), Product: "Press",
		Users: map[string]string{"probe": "first-password"}, Variables: plant.Example().OPCUA[0].Variables,
	}}})
	connection := encrypted(p.OPCUA("device").Endpoint())
	connection.Identity, connection.UserName, connection.CredentialsKey = v1alpha1.OPCUAIdentityUserName, "probe", "press"
	s.declare(t, "press", v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolOPCUA, OPCUA: connection})

	fault := s.verdict(t, firstLimit, "press", v1alpha1.ModuleFault, "CredentialsRejected").Status
	if strings.Contains(fault.Message, "outdated-password") {
		t.Errorf("the password is told: %s", fault.Message)
	}
	pod := s.probe(t, probeName)
	change := func(password string) {
		t.Helper()
		credentials.Data = maps.Clone(credentials.Data)
		credentials.Data["press"] = []byte(password)
		_, err := secrets.Update(t.Context(), credentials, metav1.UpdateOptions{})
		must(t, err)
	}
	change("first-password")
	s.online(t, firstLimit, "press")

	// The server changes it; the Secret follows.
	p.OPCUA("device").SetPassword("probe", "second-password")
	s.verdict(t, onlineLimit, "press", v1alpha1.ModuleFault, "CredentialsRejected")
	change("second-password")
	s.online(t, firstLimit, "press")

	after := podOf(t, s.name, probeName)
	if after.UID != pod.UID || after.Status.ContainerStatuses[0].RestartCount != pod.Status.ContainerStatuses[0].RestartCount {
		t.Errorf("the probe was started anew: %s, %s", pod.UID, after.UID)
	}
	for _, password := range []string{"outdated-password", "first-password", "second-password"} {
		if strings.Contains(serverLog(t), password) {
			t.Errorf("the server's log holds %q", password)
		}
	}
}

// Req: P-06, A-10
func TestChannelsAreReadByWhoMayReadThemAndByNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := protocols()["ethernetip"](t)
	s.declare(t, "packer", d.spec)
	s.online(t, firstLimit, "packer")
	s.counted(t, "packer")
	for role, may := range map[string]bool{"fieldplane-view": true, "fieldplane-simulator": false} {
		client := bind(t, s.name, role+"."+s.name, role)
		harness.Eventually(t, onlineLimit, func() string {
			// It takes a moment until a right is known.
			_, err := s.page(t.Context(), client, "packer", 1, "")
			if may && err != nil || !may && !apierrors.IsForbidden(err) {
				return fmt.Sprintf("%s: %v", role, err)
			}
			return ""
		})
	}
}
