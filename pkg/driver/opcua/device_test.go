package opcua

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13 (one connection per device)
func TestModulesOfOneServerShareOneSession(t *testing.T) {
	f := newFixture(t).serve()
	d := testDriver(Options{})
	first, second := opened(t, d, f.plain()), opened(t, d, f.plain())
	for range 5 {
		for _, dev := range []*device{first, second} {
			if reason := reasonOf(dev); reason != "" {
				t.Fatal(reason)
			}
		}
	}
	if n, s := f.accepted.Load(), f.sessions.Load(); n != 1 || s != 1 {
		t.Errorf("%d connections and %d sessions", n, s)
	}
	_ = first.Close()
	if reason := reasonOf(second); reason != "" {
		t.Errorf("after the first one closed: %s", reason)
	}
	_ = second.Close()
	if n := f.closed.Load(); n != 1 || d.Sessions() != 0 {
		t.Errorf("%d sessions closed, %d left", n, d.Sessions())
	}
}

// Req: P-13
func TestTheServersStateDecides(t *testing.T) {
	f := newFixture(t).serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	for state, want := range map[int32]struct {
		failure bool
		reason  driver.Reason
		health  driver.Health
	}{
		0:  {false, "", driver.HealthNormal},
		1:  {true, driver.ReasonServerNotRunning, ""},
		2:  {false, driver.ReasonServerNotRunning, driver.HealthFailure},
		3:  {false, driver.ReasonServerNotRunning, driver.HealthFunctionCheck},
		4:  {true, driver.ReasonServerNotRunning, ""},
		5:  {false, driver.ReasonServerNotRunning, driver.HealthFunctionCheck},
		6:  {false, driver.ReasonServerNotRunning, driver.HealthFailure},
		7:  {false, driver.ReasonServerNotRunning, driver.HealthNormal},
		8:  {true, driver.ReasonProtocolError, ""},
		-1: {true, driver.ReasonProtocolError, ""},
	} {
		f.state.Store(state)
		answer, err := dev.Check(t.Context())
		switch {
		case want.failure != (err != nil):
			t.Errorf("state %d: %+v, %v", state, answer, err)
		case err != nil && driver.ReasonOf(err) != want.reason:
			t.Errorf("state %d: %v", state, err)
		case err == nil && (answer.Reason != want.reason || answer.Health != want.health):
			t.Errorf("state %d: %+v", state, answer)
		}
	}
}

// Req: P-13
func TestReadIdentifyAndWrite(t *testing.T) {
	f := newFixture(t)
	var wrote any
	f.answer = func(request any) any {
		if w, ok := request.(*ua.WriteRequest); ok {
			wrote = w.NodesToWrite[0].Value.Value.Value()
		}
		return nil
	}
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	id, err := dev.Identify(t.Context())
	if want := (driver.Identity{Vendor: "text i=2263", Product: "text i=2261", Revision: "text i=2264"}); err != nil || id != want {
		t.Errorf("%+v, %v", id, err)
	}
	v := driver.Channel{Name: "v", Address: "nsu=urn:plant;s=v"}
	for want, channel := range map[any]driver.Channel{
		float32(1.5): v,
		float64(1.5): {Name: "v", Address: "ns=2;s=v", DataType: driver.Float64},
		"1.5":        {Name: "v", Address: "ns=2;s=v", DataType: driver.String},
	} {
		if got, err := driver.ReadOne(t.Context(), dev, channel); err != nil || got != want {
			t.Errorf("read %v (%T), %v", got, got, err)
		}
	}
	for name, channel := range map[string]driver.Channel{
		"a node that is not there":      {Name: "x", Address: "ns=2;s=x"},
		"a namespace that is not there": {Name: "x", Address: "nsu=urn:other;s=v"},
		"a type that does not fit":      {Name: "x", Address: "ns=2;s=v", DataType: driver.Int16},
		"a value that is no bool":       {Name: "x", Address: "ns=2;s=v", DataType: driver.Bool},
	} {
		_, err := driver.ReadOne(t.Context(), dev, channel)
		failure, ok := err.(*driver.Error)
		if !ok || !failure.Answered || failure.Reason != driver.ReasonConfigurationError || !strings.Contains(err.Error(), `channel "x"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := dev.Write(t.Context(), v, float64(2.5)); err != nil || wrote != float32(2.5) {
		t.Errorf("wrote %v (%T), %v", wrote, wrote, err)
	}
	if err := dev.Write(t.Context(), v, "text"); driver.ReasonOf(err) != driver.ReasonConfigurationError {
		t.Errorf("a text was written: %v", err)
	}
}

// Req: P-16; telegraf#18787 (thousands of new sessions)
func TestALostConnectionIsReplacedWithinTheSameCheckAndKeepsItsSession(t *testing.T) {
	f := newFixture(t).serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	for i := range int32(5) {
		if reason := reasonOf(dev); reason != "" {
			t.Fatalf("after %d resets: %s", i, reason)
		}
		if n := f.sessions.Load(); n != i+1 {
			t.Fatalf("%d activations after %d resets", n, i)
		}
		f.hangUp()
	}
	if n := f.created.Load(); n != 1 {
		t.Errorf("%d sessions were created", n)
	}
}

// Req: P-13
func TestASessionThatTheServerForgotIsReplaced(t *testing.T) {
	f := newFixture(t)
	f.answer = func(request any) any {
		if _, ok := request.(*ua.ActivateSessionRequest); ok && f.sessions.Load() == 2 && f.created.Load() == 1 {
			return fault(ua.StatusBadSessionIDInvalid)
		}
		if r, ok := request.(*ua.ReadRequest); ok && f.created.Load() == 1 && r.NodesToRead[0].NodeID.IntID() == nodeServerState {
			return fault(ua.StatusBadSessionIDInvalid)
		}
		return nil
	}
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	// The first check opened the session itself, and so does not try again; the second one finds it gone.
	if reason := reasonOf(dev); reason != driver.ReasonConnectionLost {
		t.Errorf("first: %s", reason)
	}
	if reason := reasonOf(dev); reason != "" || f.created.Load() != 2 {
		t.Errorf("second: %s, %d sessions", reason, f.created.Load())
	}
}

func fault(status ua.StatusCode) *ua.ServiceFault {
	header := ok()
	header.ServiceResult = status
	return &ua.ServiceFault{ResponseHeader: header}
}

// Req: P-13; plc4x#1589
func TestRefusalsOfASession(t *testing.T) {
	for _, c := range []struct {
		name   string
		stage  any
		status ua.StatusCode
		want   driver.Reason
		waits  bool
	}{
		{"no session left", &ua.CreateSessionRequest{}, ua.StatusBadTooManySessions, driver.ReasonTooManySessions, true},
		{"an unknown user", &ua.ActivateSessionRequest{}, ua.StatusBadIdentityTokenRejected, driver.ReasonCredentialsRejected, true},
		{"a wrong password", &ua.ActivateSessionRequest{}, ua.StatusBadUserAccessDenied, driver.ReasonCredentialsRejected, true},
		{"a certificate that is not trusted", &ua.CreateSessionRequest{}, ua.StatusBadCertificateUntrusted, driver.ReasonClientCertificateRejected, true},
		{"another policy", &ua.OpenSecureChannelRequest{}, ua.StatusBadSecurityPolicyRejected, driver.ReasonSecurityModeRejected, true},
		{"a server that shuts down", &ua.CreateSessionRequest{}, ua.StatusBadShutdown, driver.ReasonServerNotRunning, false},
		{"a server that fails", &ua.CreateSessionRequest{}, ua.StatusBadInternalError, driver.ReasonDeviceFailure, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.answer = func(request any) any {
				if sameType(request, c.stage) {
					return fault(c.status)
				}
				return nil
			}
			f.serve()
			dev := opened(t, testDriver(Options{}), f.plain())
			for range 3 {
				_, err := dev.Check(t.Context())
				if failure, ok := err.(*driver.Error); !ok || failure.Reason != c.want || failure.Answered {
					t.Errorf("%v, want %s", err, c.want)
				}
			}
			if n := f.accepted.Load(); c.waits != (n == 1) {
				t.Errorf("%d attempts", n)
			}
		})
	}
}

func sameType(a, b any) bool {
	switch a.(type) {
	case *ua.OpenSecureChannelRequest:
		_, ok := b.(*ua.OpenSecureChannelRequest)
		return ok
	case *ua.CreateSessionRequest:
		_, ok := b.(*ua.CreateSessionRequest)
		return ok
	case *ua.ActivateSessionRequest:
		_, ok := b.(*ua.ActivateSessionRequest)
		return ok
	}
	return false
}

// Req: P-13 (a changed credential is used without remaking a pod)
func TestAChangedCredentialReplacesTheSession(t *testing.T) {
	f := newFixture(t)
	var got string
	password := "first"
	f.answer = func(request any) any {
		if r, ok := request.(*ua.ActivateSessionRequest); ok {
			token := r.UserIdentityToken.Value.(*ua.UserNameIdentityToken)
			got = string(token.Password)
			if got == "wrong" {
				return fault(ua.StatusBadUserAccessDenied)
			}
		}
		return nil
	}
	f.serve()
	config := f.plain()
	config.Identity, config.UserName, config.CredentialsKey, config.AllowInsecureAuth = UserName, "u", "k", true
	d := testDriver(Options{Credentials: func(string) ([]byte, error) { return []byte(password), nil }})
	dev := opened(t, d, config)
	change := func(to string) {
		// The credentials are looked at once a second.
		dev.connection.mu.Lock()
		password, dev.connection.looked = to, time.Time{}
		dev.connection.mu.Unlock()
	}
	if reason := reasonOf(dev); reason != "" || got != "first" {
		t.Fatal(reason, got)
	}
	change("second\n")
	if reason := reasonOf(dev); reason != "" || got != "second" || f.sessions.Load() != 2 {
		t.Fatal(reason, got, f.sessions.Load())
	}
	change("wrong")
	if reason := reasonOf(dev); reason != driver.ReasonCredentialsRejected {
		t.Fatal(reason)
	}
	// The refusal holds for a while; a new password does not wait for its end.
	change("third")
	if reason := reasonOf(dev); reason != "" || got != "third" {
		t.Fatal(reason, got)
	}
}

// Req: P-13
func TestTheSecurityTokenIsRenewed(t *testing.T) {
	f := newFixture(t).serve()
	dev := opened(t, testDriver(Options{TokenLifetime: 200 * time.Millisecond}), f.plain())
	for range 20 {
		if reason := reasonOf(dev); reason != "" {
			t.Fatal(reason)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if f.tokens.Load() < 3 || f.sessions.Load() != 1 {
		t.Errorf("%d tokens, %d sessions", f.tokens.Load(), f.sessions.Load())
	}
}

// Req: P-16 (request timeout 1 s, every driver)
func TestACallEndsWithItsTimeoutWhateverTheServerDoes(t *testing.T) {
	for _, stage := range []string{"HEL", "OPN", "CreateSession", "ActivateSession", "Read"} {
		t.Run("silent after "+stage, func(t *testing.T) {
			f := newFixture(t)
			f.spoil = func(at string, reply []byte) []byte {
				if at == stage {
					return nil
				}
				return reply
			}
			f.serve()
			dev := opened(t, testDriver(Options{}), f.plain())
			for range 3 {
				started := time.Now()
				_, err := dev.Check(t.Context())
				if took := time.Since(started); took > 400*time.Millisecond {
					t.Errorf("the check took %s", took)
				}
				if driver.ReasonOf(err) != driver.ReasonTimeout {
					t.Errorf("%v", err)
				}
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		_ = listener.Close()
		dev := opened(t, testDriver(Options{}), Config{Endpoint: "opc.tcp://" + address, SecurityPolicy: PolicyNone})
		if reason := reasonOf(dev); reason != driver.ReasonRefused {
			t.Error(reason)
		}
	})
}

// Req: P-16; gopcua#828 (state Connected after a cable cut)
func TestAServerThatGoesSilentIsLostAndComesBack(t *testing.T) {
	f := newFixture(t)
	silent := make(chan struct{}, 1)
	f.spoil = func(_ string, reply []byte) []byte {
		if len(silent) > 0 {
			return nil
		}
		return reply
	}
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	if reason := reasonOf(dev); reason != "" {
		t.Fatal(reason)
	}
	silent <- struct{}{}
	for range 3 {
		if reason := reasonOf(dev); reason != driver.ReasonTimeout {
			t.Errorf("while silent: %s", reason)
		}
	}
	<-silent
	back := time.Now()
	for reasonOf(dev) != "" {
		if time.Since(back) > 10*time.Second {
			t.Fatal("it does not come back")
		}
	}
	if n := f.created.Load(); n != 1 {
		t.Errorf("%d sessions were created for one cut cable", n)
	}
}

func TestACancelledCallEndsAtOnceAndHarmsNobody(t *testing.T) {
	f := newFixture(t)
	f.spoil = func(at string, reply []byte) []byte {
		if at == "Write" {
			return nil
		}
		return reply
	}
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	if reason := reasonOf(dev); reason != "" {
		t.Fatal(reason)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	started := time.Now()
	if err := dev.Write(ctx, driver.Channel{Address: "ns=2;s=v"}, float32(1)); err == nil || time.Since(started) > 150*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	if reason := reasonOf(dev); reason != "" || f.sessions.Load() != 1 {
		t.Errorf("%s, %d sessions", reason, f.sessions.Load())
	}
}

// Req: P-13; akri#624 (an advertised host name that does not resolve)
func TestAServerThatAdvertisesAnotherHostIsReachedAndTold(t *testing.T) {
	for _, c := range []struct {
		name, advertised, says string
	}{
		{"nothing", "", ""},
		{"no URL", "plc", ""},
		{"itself", "opc.tcp://HOST", ""},
		{"itself with a path", "opc.tcp://HOST/plant", ""},
		{"another host", "opc.tcp://plc.invalid:4840/plant", "the server advertises itself as plc.invalid:4840, and is reached at 127.0.0.1:"},
		{"another port", "opc.tcp://127.0.0.1:1", "as 127.0.0.1:1,"},
		{"a host that would act on a terminal", "opc.tcp://plc\u202e.invalid", "as plc.invalid:4840,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.advertise = strings.ReplaceAll(c.advertised, "HOST", f.listener.Addr().String())
			f.serve()
			answer, err := opened(t, testDriver(Options{}), f.plain()).Check(t.Context())
			if err != nil || answer.Reason != "" || answer.Health != driver.HealthNormal {
				t.Fatalf("%+v, %v", answer, err)
			}
			if !strings.Contains(answer.Message, c.says) || (answer.Message == "") != (c.says == "") {
				t.Errorf("message %q, want %q", answer.Message, c.says)
			}
		})
	}
}
