package opcua

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// sessionTimeout is how long a server keeps the session of a probe that was killed: its default of hours would leave
	// a server without sessions to give.
	sessionTimeout = 30 * time.Second
	// maxNamespaces and maxNamespaceURI bound what is kept of a server's namespaces, in number and bytes; a namespace with no
	// URI is addressed by its index.
	maxNamespaces   = 1000
	maxNamespaceURI = 512
	// nonceSize of CreateSession.
	nonceSize = 32
	// transportProfile is OPC UA TCP with the binary encoding, the only one that we speak.
	transportProfile = "http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary"
)

// The user identity token types.
const (
	tokenAnonymous   = 0
	tokenUserName    = 1
	tokenCertificate = 2
)

// session is one activated session on a channel of its own.
type session struct {
	*channel
	authentication *ua.NodeID
	// namespaces are the server's namespace URIs by index.
	namespaces []string
	// secrets is what the credentials were when the session was opened.
	secrets [sha256.Size]byte

	// What it takes to go on with the session on another channel.
	offer       *endpointDescription
	certificate []byte
	nonce       []byte
	// reads is how many channels are read at once.
	reads readBatch
	// resumed: the server was asked for it on another channel. It is asked once: some servers answer such a question by hanging up.
	resumed bool
}

// secrets are the credentials as they stand now.
type secrets struct {
	password        string
	userCertificate []byte
	userKeys        *Application
	// application is nil where none stands among the credentials.
	application *Application
	trust       trust
	digest      [sha256.Size]byte
}

// readSecrets asks for the credentials that the configuration names, and for our own certificate under applicationKey if it is there.
func readSecrets(c Config, applicationKey string, credentials Credentials) (secrets, error) {
	s := secrets{trust: trust{thumbprint: c.TrustedThumbprint}}
	digest := sha256.New()
	get := func(key string) ([]byte, error) {
		if credentials == nil {
			return nil, driver.ConfigurationError("there are no credentials, and the module names the key %q", key)
		}
		raw, err := credentials(key)
		if err != nil {
			return nil, driver.ConfigurationError("the credentials have no key %q: %w", key, err)
		}
		_ = binary.Write(digest, binary.LittleEndian, int64(len(raw)))
		digest.Write(raw)
		return raw, nil
	}
	if c.TrustedCertificateKey != "" {
		raw, err := get(c.TrustedCertificateKey)
		if err != nil {
			return s, err
		}
		if s.trust.certificates, err = parseTrusted(raw); err != nil {
			return s, driver.ConfigurationError("key %q of the credentials: %w", c.TrustedCertificateKey, err)
		}
	}
	switch c.Identity {
	case UserName:
		raw, err := get(c.CredentialsKey)
		if err != nil {
			return s, err
		}
		// Files end with a newline, passwords do not.
		s.password = strings.TrimRight(string(raw), "\r\n")
	case Certificate:
		raw, err := get(c.CredentialsKey)
		if err != nil {
			return s, err
		}
		certificate, key, err := parseKeyPair(raw)
		if err != nil {
			return s, driver.ConfigurationError("key %q of the credentials: %w", c.CredentialsKey, err)
		}
		s.userCertificate = certificate.Raw
		s.userKeys = &Application{certificate: certificate, key: key}
	}
	if applicationKey != "" && credentials != nil && c.SecurityPolicy != PolicyNone {
		raw, err := get(applicationKey)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return s, err
		default:
			if s.application, err = ParseApplication(raw); err != nil {
				return s, driver.ConfigurationError("key %q of the credentials: %w", applicationKey, err)
			}
		}
	}
	digest.Sum(s.digest[:0])
	return s, nil
}

// opener is what it takes to open a session.
type opener struct {
	config   Config
	hostPort string
	dial     Dial
	// applicationKey is where the credentials may hold our certificate; application makes one otherwise.
	applicationKey string
	application    func() (*Application, error)
	now            func() time.Time
	lifetime       time.Duration
}

// endpointDescription is one offer of a server.
type endpointDescription struct {
	url         string
	certificate []byte
	mode        ua.MessageSecurityMode
	policy      string
	tokens      []tokenPolicy
	transport   string
}

// tokenPolicy is one kind of user identity token that an endpoint takes.
type tokenPolicy struct {
	id     string
	kind   uint32
	policy string
}

// open opens a session, or goes on with the one that was lost with its connection, if the server still has it: a link that
// flaps would else fill the server with sessions that only their timeout ends. Nothing secret is sent before the server has
// proved that it owns the trusted certificate.
func (o opener) open(ctx context.Context, secrets secrets, lost *session) (s *session, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, &driver.Error{Reason: driver.ReasonProtocolError, Err: fmt.Errorf("connecting to %s: %v", o.hostPort, p)}
		}
	}()
	secured := security{policy: o.config.SecurityPolicy, mode: o.config.SecurityMode}
	var offer *endpointDescription
	if secured.policy != PolicyNone {
		offers, err := o.endpoints(ctx)
		if err != nil {
			return nil, err
		}
		if offer, err = o.choose(offers); err != nil {
			return nil, err
		}
		// Also where nothing is trusted yet: the refusal tells the thumbprint that the operator compares and pins.
		if secured.remote, err = secrets.trust.verify(offer.certificate, o.now()); err != nil {
			return nil, err
		}
		secured.local = secrets.application
		if secured.local == nil {
			if secured.local, err = o.application(); err != nil {
				return nil, &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf("our own certificate: %w", err)}
			}
		}
	}
	c, err := openChannel(ctx, o.dial, o.hostPort, o.config.Endpoint, secured, o.lifetime, o.config.Timeout)
	if err != nil {
		return nil, o.explain(err, secured)
	}
	s = &session{channel: c, secrets: secrets.digest, offer: offer}
	if lost != nil && lost.secrets == secrets.digest {
		lost.resumed = true
		s.authentication, s.offer, s.certificate, s.nonce = lost.authentication, lost.offer, lost.certificate, lost.nonce
		if err = o.activate(ctx, s, secured, secrets); isStatus(err) {
			lost, s.authentication, s.offer = nil, nil, offer
		}
	} else {
		lost = nil
	}
	if lost == nil {
		if err = o.create(ctx, s, secured, secrets); err == nil {
			err = o.activate(ctx, s, secured, secrets)
		}
	}
	if err != nil {
		s.end(o.config.Timeout)
		return nil, o.explain(atStep(err, o.hostPort, "opening the session"), secured)
	}
	return s, nil
}

// explain names our own thumbprint when the server does not trust it: the operator finds it there among the rejected.
func (o opener) explain(err error, s security) error {
	e := linkError(err, o.hostPort, "")
	if e.Reason == driver.ReasonClientCertificateRejected && s.local != nil {
		return &driver.Error{Reason: e.Reason, Err: fmt.Errorf("%w; our certificate's SHA-256 thumbprint is %s", e.Err, s.local.Thumbprint())}
	}
	if e.Reason == driver.ReasonAccessDenied {
		// At the opening of a session the user is what is refused, a wrong password for one.
		return &driver.Error{Reason: driver.ReasonCredentialsRejected, Err: e.Err}
	}
	return e
}

// endpoints asks what the server offers, on an unsecured channel that carries nothing else.
func (o opener) endpoints(ctx context.Context) ([]endpointDescription, error) {
	c, err := openChannel(ctx, o.dial, o.hostPort, o.config.Endpoint, security{policy: PolicyNone, mode: ModeNone}, o.lifetime, o.config.Timeout)
	if err != nil {
		return nil, err
	}
	defer c.close()
	d, err := c.call(ctx, &ua.GetEndpointsRequest{EndpointURL: o.config.Endpoint}, getEndpointsResponse, nil, 3*o.config.Timeout)
	if err != nil {
		return nil, atStep(err, o.hostPort, "asking for the endpoints")
	}
	offers := d.endpoints()
	if d.err != nil {
		return nil, atStep(d.err, o.hostPort, "asking for the endpoints")
	}
	return offers, nil
}

func (d *decoder) endpoints() []endpointDescription {
	var all []endpointDescription
	for range d.count(40) {
		var e endpointDescription
		e.url = d.string()
		d.bytes() // application URI
		d.bytes() // product URI
		d.localizedText()
		d.u32() // application type
		d.bytes()
		d.bytes()
		for range d.count(4) {
			d.bytes()
		}
		e.certificate = d.bytes()
		e.mode = ua.MessageSecurityMode(d.u32())
		e.policy = d.string()
		for range d.count(20) {
			t := tokenPolicy{id: d.string(), kind: d.u32()}
			d.bytes()
			d.bytes()
			t.policy = d.string()
			e.tokens = append(e.tokens, t)
		}
		e.transport = d.string()
		d.u8()
		if d.err != nil {
			return nil
		}
		all = append(all, e)
	}
	return all
}

// choose finds the endpoint of exactly the mode and policy that were asked for. The server's own ranking counts for
// nothing: whoever answers an unauthenticated question could rank as it likes.
func (o opener) choose(offers []endpointDescription) (*endpointDescription, error) {
	var offered []string
	var chosen *endpointDescription
	for i := range offers {
		e := &offers[i]
		if e.transport != "" && e.transport != transportProfile {
			continue
		}
		mode := strings.TrimPrefix(e.mode.String(), "MessageSecurityMode")
		if e.policy == o.config.SecurityPolicy.uri() && mode == string(o.config.SecurityMode) {
			// A server of several addresses may offer the same at each.
			if chosen == nil || elsewhere(e.url, o.hostPort) == "" && elsewhere(chosen.url, o.hostPort) != "" {
				chosen = e
			}
			continue
		}
		name := strings.TrimPrefix(e.policy, policyPrefix) + "/" + mode
		if !slices.Contains(offered, name) && len(offered) < 16 {
			offered = append(offered, printable(name))
		}
	}
	if chosen != nil {
		return chosen, nil
	}
	slices.Sort(offered)
	return nil, &driver.Error{Reason: driver.ReasonSecurityModeRejected, Err: fmt.Errorf("the server does not offer %s/%s; it offers %s",
		o.config.SecurityPolicy, o.config.SecurityMode, strings.Join(offered, ", "))}
}

// create creates the session and has the server prove who it is.
func (o opener) create(ctx context.Context, s *session, secured security, secrets secrets) error {
	timeout := 3 * o.config.Timeout
	application := &ua.ApplicationDescription{
		ApplicationURI:  defaultApplicationURI,
		ApplicationName: ua.NewLocalizedText("fieldplane"),
		ApplicationType: ua.ApplicationTypeClient,
	}
	request := &ua.CreateSessionRequest{
		ClientDescription:       application,
		EndpointURL:             o.config.Endpoint,
		SessionName:             "fieldplane io-probe",
		ClientNonce:             make([]byte, nonceSize),
		RequestedSessionTimeout: float64(sessionTimeout / time.Millisecond),
		MaxResponseMessageSize:  maxMessage,
	}
	if _, err := rand.Read(request.ClientNonce); err != nil {
		return err
	}
	if secured.local != nil {
		application.ApplicationURI = secured.local.uri
		request.ClientCertificate = secured.local.certificate.Raw
	}
	d, err := s.channel.call(ctx, request, createSessionResponse, nil, timeout)
	if err != nil {
		return err
	}
	d.nodeID()
	authentication, _ := d.nodeID()
	d.f64()
	nonce := bytes.Clone(d.bytes())
	certificate := bytes.Clone(leafOf(d.bytes()))
	offers := d.endpoints()
	for range d.count(8) {
		d.bytes()
		d.bytes()
	}
	d.bytes()
	signature := d.bytes()
	if d.err != nil {
		return d.err
	}
	s.authentication, s.certificate, s.nonce = authentication.ua(), certificate, nonce
	if secured.policy == PolicyNone {
		if s.offer, err = o.choose(offers); err != nil {
			// A server that does not repeat its offers: the usual policy id is the best guess.
			s.offer = &endpointDescription{}
		}
		if secrets.trust.given() {
			_, err := secrets.trust.verify(certificate, o.now())
			return err
		}
		return nil
	}
	if !bytes.Equal(certificate, secured.remote.Raw) {
		return untrusted(certificate, "the session's certificate is not the channel's")
	}
	algorithm, err := secured.asymmetric()
	if err != nil {
		return err
	}
	if err := algorithm.VerifySignature(slices.Concat(secured.local.certificate.Raw, request.ClientNonce), signature); err != nil {
		return untrusted(certificate, "the server cannot prove that the certificate is its own")
	}
	return nil
}

// activate proves who we are, binds the session to this channel, and reads the namespaces.
func (o opener) activate(ctx context.Context, s *session, secured security, secrets secrets) error {
	timeout := 3 * o.config.Timeout
	activation := &ua.ActivateSessionRequest{
		ClientSignature:    &ua.SignatureData{},
		LocaleIDs:          []string{"en"},
		UserTokenSignature: &ua.SignatureData{},
	}
	server := secured.remote
	if secured.policy != PolicyNone {
		algorithm, err := secured.asymmetric()
		if err != nil {
			return err
		}
		activation.ClientSignature.Algorithm = algorithm.SignatureURI()
		if activation.ClientSignature.Signature, err = algorithm.Signature(slices.Concat(server.Raw, s.nonce)); err != nil {
			return err
		}
	} else if len(s.certificate) > 0 {
		// Nothing proves that it is the server's; it may still keep a password from those who only listen.
		server, _ = x509.ParseCertificate(s.certificate)
	}
	user, userSignature, err := o.identity(secured, s.offer, server, s.nonce, secrets)
	if err != nil {
		return err
	}
	activation.UserIdentityToken = ua.NewExtensionObject(user)
	if userSignature != nil {
		activation.UserTokenSignature = userSignature
	}
	d, err := s.channel.call(ctx, activation, activateSessionResponse, s.authentication, timeout)
	if err != nil {
		return err
	}
	s.nonce = bytes.Clone(d.bytes())
	if d.err != nil {
		return s.malformed("the session's activation")
	}
	return s.readNamespaces(ctx, timeout)
}

// identity is the user identity token for the endpoint.
func (o opener) identity(secured security, offer *endpointDescription, server *x509.Certificate, nonce []byte, secrets secrets) (any, *ua.SignatureData, error) {
	switch o.config.Identity {
	case UserName:
		t, policy, err := o.tokenPolicy(secured, offer, tokenUserName, server != nil)
		if err != nil {
			return nil, nil, err
		}
		token := &ua.UserNameIdentityToken{PolicyID: t.id, UserName: o.config.UserName}
		if policy == PolicyNone {
			if secured.mode != ModeSignAndEncrypt && !o.config.AllowInsecureAuth {
				return nil, nil, &driver.Error{Reason: driver.ReasonInsecureAuthentication,
					Err: errors.New("the server wants the password in clear text on a channel that does not encrypt: choose SignAndEncrypt, or accept it with allowInsecureAuth")}
			}
			token.Password = []byte(secrets.password)
			return token, nil, nil
		}
		algorithm, err := asymmetric(policy, nil, server)
		if err != nil {
			return nil, nil, err
		}
		plain := binary.LittleEndian.AppendUint32(nil, uint32(len(secrets.password)+len(nonce)))
		plain = append(append(plain, secrets.password...), nonce...)
		if token.Password, err = algorithm.Encrypt(plain); err != nil {
			return nil, nil, err
		}
		token.EncryptionAlgorithm = algorithm.EncryptionURI()
		return token, nil, nil

	case Certificate:
		t, policy, err := o.tokenPolicy(secured, offer, tokenCertificate, server != nil)
		if err != nil {
			return nil, nil, err
		}
		if policy == PolicyNone {
			return nil, nil, &driver.Error{Reason: driver.ReasonSecurityModeRejected,
				Err: errors.New("over policy None the server takes a user's certificate without proof of its key: choose another security policy")}
		}
		algorithm, err := asymmetric(policy, secrets.userKeys.key, server)
		if err != nil {
			return nil, nil, err
		}
		signature, err := algorithm.Signature(slices.Concat(server.Raw, nonce))
		if err != nil {
			return nil, nil, err
		}
		return &ua.X509IdentityToken{PolicyID: t.id, CertificateData: secrets.userCertificate},
			&ua.SignatureData{Algorithm: algorithm.SignatureURI(), Signature: signature}, nil

	default:
		t, _, err := o.tokenPolicy(secured, offer, tokenAnonymous, false)
		if err != nil {
			return nil, nil, err
		}
		return &ua.AnonymousIdentityToken{PolicyID: t.id}, nil, nil
	}
}

// tokenPolicy chooses how the user is told: by a policy that encrypts, if the server offers one that we speak.
func (o opener) tokenPolicy(secured security, offer *endpointDescription, kind uint32, haveCertificate bool) (tokenPolicy, SecurityPolicy, error) {
	if len(offer.tokens) == 0 && kind == tokenAnonymous {
		return tokenPolicy{id: "Anonymous"}, PolicyNone, nil
	}
	var clear *tokenPolicy
	for _, t := range offer.tokens {
		if t.kind != kind {
			continue
		}
		policy := secured.policy
		if t.policy != "" {
			known := false
			if policy, known = policyOf(t.policy); !known {
				continue
			}
		}
		switch {
		case kind == tokenAnonymous:
			return t, policy, nil
		case policy == PolicyNone:
			clear = &t
		case haveCertificate:
			return t, policy, nil
		}
	}
	if clear != nil {
		return *clear, PolicyNone, nil
	}
	return tokenPolicy{}, "", &driver.Error{Reason: driver.ReasonCredentialsRejected,
		Err: fmt.Errorf("the server takes no identity %s on the endpoint %s/%s", o.config.Identity, o.config.SecurityPolicy, o.config.SecurityMode)}
}

// end closes the session and its channel. The server is asked, and not waited for longer than wait: a session
// that is only abandoned stays on the server until its timeout, and servers have few.
func (s *session) end(wait time.Duration) {
	if s.authentication != nil && s.failure() == nil {
		_, _ = s.exchange(context.Background(), "MSG", &ua.CloseSessionRequest{DeleteSubscriptions: true}, closeSessionResponse, s.authentication, wait)
	}
	s.channel.close()
}

// request is a call within the session.
func (s *session) request(ctx context.Context, request ua.Request, want uint32, timeout time.Duration) (*decoder, error) {
	return s.channel.call(ctx, request, want, s.authentication, timeout)
}

// readNamespaces reads the namespace array, by which addresses with a URI find their index in this session.
func (s *session) readNamespaces(ctx context.Context, timeout time.Duration) error {
	samples, err := s.read(ctx, []attribute{{node: numeric(nodeNamespaceArray), id: ua.AttributeIDValue}}, timeout)
	if err != nil {
		return err
	}
	elements, _ := samples[0].value.([]any)
	for _, element := range elements[:min(len(elements), maxNamespaces)] {
		uri, _ := element.(string)
		if len(uri) > maxNamespaceURI {
			// It stands in every address of its namespace, and is kept as long as the session.
			uri = ""
		}
		s.namespaces = append(s.namespaces, uri)
	}
	return nil
}

// attribute is one attribute of one node.
type attribute struct {
	node nodeID
	id   ua.AttributeID
}

// read reads attributes; their order is kept.
func (s *session) read(ctx context.Context, attributes []attribute, timeout time.Duration) ([]sample, error) {
	d, err := s.request(ctx, readRequest{attributes: attributes}, readResponse, timeout)
	if err != nil {
		return nil, err
	}
	if n := d.count(1); n != len(attributes) {
		return nil, s.malformed("%d values where %d were asked for", n, len(attributes))
	}
	samples := make([]sample, len(attributes))
	for i := range samples {
		samples[i] = d.dataValue(0)
	}
	if d.err != nil {
		return nil, s.malformed("values")
	}
	return samples, nil
}

// malformed ends the channel over a reply that cannot be read.
func (s *session) malformed(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{errMalformed}, args...)...)
	s.fail(err)
	return err
}

// maxNameplate bounds one member of an identity: it ends up in a status.
const maxNameplate = 64

// printable is a device's text without what a terminal would act on.
func printable(text string) string {
	return clip(text, maxNameplate)
}

// clip is at most n runes of a text that is shown on terminals.
func clip(text string, n int) string {
	var b strings.Builder
	for _, r := range text {
		if n == 0 {
			break
		}
		if r >= ' ' && r != 0x7F && (r < 0x80 || r >= 0xA0) && r != 0xFFFD && !bidirectional(r) {
			b.WriteRune(r)
			n--
		}
	}
	return b.String()
}

// bidirectional tells the controls that reorder what is shown, so that a name looks like another.
func bidirectional(r rune) bool {
	return r >= 0x200B && r <= 0x200F || r >= 0x2028 && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || r == 0xFEFF
}
