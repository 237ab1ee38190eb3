// Package opcua reads and browses OPC UA servers: one session per endpoint, security and identity, shared by all
// modules that ask for the same (P-13).
//
// The encoding of requests and the cryptography are gopcua's. The channel and the decoding of replies are our own:
// gopcua decodes in a goroutine of its own, where a malformed reply ends the process and nothing can recover it.
package opcua

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// defaultPort is the port registered for OPC UA.
const defaultPort = "4840"

// defaultTimeout is the request timeout of a Config that names none (P-16: 1 s).
const defaultTimeout = time.Second

// SecurityPolicy names an OPC UA security policy.
type SecurityPolicy string

// The policies that this driver speaks; Basic128Rsa15 and Basic256 are broken, and not among them.
const (
	PolicyNone                SecurityPolicy = "None"
	PolicyBasic256Sha256      SecurityPolicy = "Basic256Sha256"
	PolicyAes128Sha256RsaOaep SecurityPolicy = "Aes128_Sha256_RsaOaep"
	PolicyAes256Sha256RsaPss  SecurityPolicy = "Aes256_Sha256_RsaPss"
)

// policies are the known ones; a token policy that is none of them is never used.
var policies = [...]SecurityPolicy{PolicyNone, PolicyBasic256Sha256, PolicyAes128Sha256RsaOaep, PolicyAes256Sha256RsaPss}

// policyPrefix comes before a policy's name in its URI (OPC 10000-7).
const policyPrefix = "http://opcfoundation.org/UA/SecurityPolicy#"

func (p SecurityPolicy) uri() string { return policyPrefix + string(p) }

// policyOf is the policy of a URI, or false when this driver does not speak it.
func policyOf(uri string) (SecurityPolicy, bool) {
	name, ok := strings.CutPrefix(uri, policyPrefix)
	return SecurityPolicy(name), ok && slices.Contains(policies[:], SecurityPolicy(name))
}

// SecurityMode names a message security mode.
type SecurityMode string

// The message security modes.
const (
	ModeNone           SecurityMode = "None"
	ModeSign           SecurityMode = "Sign"
	ModeSignAndEncrypt SecurityMode = "SignAndEncrypt"
)

// IdentityKind names a kind of user identity token.
type IdentityKind string

// The kinds of identity.
const (
	Anonymous   IdentityKind = "Anonymous"
	UserName    IdentityKind = "UserName"
	Certificate IdentityKind = "Certificate"
)

// Credentials returns what stands under a key now. It is asked again for every new connection and about once a second, so that
// a changed credential is used without a restart.
type Credentials func(key string) ([]byte, error)

// Config is one device: an OPC UA server, and how it is reached and trusted.
type Config struct {
	// Endpoint is opc.tcp://host[:port][/path]; the server is dialled there, whatever host name it advertises.
	Endpoint string
	// SecurityPolicy is Basic256Sha256 when empty, and SecurityMode SignAndEncrypt unless the policy is None. The
	// server must offer exactly these.
	SecurityPolicy SecurityPolicy
	SecurityMode   SecurityMode
	// Identity is Anonymous when empty.
	Identity IdentityKind
	UserName string
	// CredentialsKey is where Credentials finds the password, or the PEM certificate and key, of the user.
	CredentialsKey string
	// AllowInsecureAuth accepts that the password travels in clear text.
	AllowInsecureAuth bool
	// TrustedThumbprint is the SHA-1 or SHA-256 of the server certificate in hex, TrustedCertificateKey where
	// Credentials finds PEM certificates, of the server or of its CA. Without either, no server is trusted unless the policy is None.
	TrustedThumbprint     string
	TrustedCertificateKey string
	// Timeout of one request; zero means 1 s.
	Timeout time.Duration
	// Channels are the declared channels.
	Channels []driver.Channel
}

// normalise fills in the defaults and checks the rest. Its error is always a ReasonConfigurationError, except that a
// password in clear text is a ReasonInsecureAuthentication.
func (c Config) normalise() (Config, string, error) {
	host, err := ParseEndpoint(c.Endpoint)
	if err != nil {
		return c, "", err
	}
	if c.SecurityPolicy == "" {
		c.SecurityPolicy = PolicyBasic256Sha256
	}
	if c.SecurityMode == "" {
		c.SecurityMode = ModeSignAndEncrypt
		if c.SecurityPolicy == PolicyNone {
			c.SecurityMode = ModeNone
		}
	}
	if c.Identity == "" {
		c.Identity = Anonymous
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if !slices.Contains(policies[:], c.SecurityPolicy) {
		return c, "", driver.ConfigurationError("security policy %q is none of %v", c.SecurityPolicy, policies)
	}
	switch c.SecurityMode {
	case ModeNone, ModeSign, ModeSignAndEncrypt:
	default:
		return c, "", driver.ConfigurationError("security mode %q is not None, Sign or SignAndEncrypt", c.SecurityMode)
	}
	if (c.SecurityPolicy == PolicyNone) != (c.SecurityMode == ModeNone) {
		return c, "", driver.ConfigurationError("security mode %s does not go with security policy %s", c.SecurityMode, c.SecurityPolicy)
	}
	switch c.Identity {
	case Anonymous:
	case UserName:
		if c.UserName == "" || c.CredentialsKey == "" {
			return c, "", driver.ConfigurationError("identity UserName needs a user name and a credentials key")
		}
		if c.SecurityPolicy == PolicyNone && !c.AllowInsecureAuth {
			return c, "", &driver.Error{Reason: driver.ReasonInsecureAuthentication,
				Err: fmt.Errorf("over security policy None the password would travel in clear text: choose another policy, or accept it with allowInsecureAuth")}
		}
	case Certificate:
		if c.CredentialsKey == "" {
			return c, "", driver.ConfigurationError("identity Certificate needs a credentials key")
		}
	default:
		return c, "", driver.ConfigurationError("identity %q is not Anonymous, UserName or Certificate", c.Identity)
	}
	if c.TrustedThumbprint != "" {
		raw, err := hex.DecodeString(strings.ReplaceAll(c.TrustedThumbprint, ":", ""))
		if err != nil || len(raw) != 20 && len(raw) != 32 {
			return c, "", driver.ConfigurationError("the trusted thumbprint must be a SHA-1 (40 digits) or SHA-256 (64 digits) in hexadecimal")
		}
		c.TrustedThumbprint = hex.EncodeToString(raw)
	}
	for _, channel := range c.Channels {
		if _, err := parseAddress(channel.Address); err != nil {
			return c, "", channelError(channel, err)
		}
	}
	return c, host, nil
}

// ParseEndpoint returns the host:port of an opc.tcp://host[:port][/path] endpoint.
func ParseEndpoint(endpoint string) (string, error) {
	return driver.ParseEndpoint(endpoint, "opc.tcp", defaultPort, true)
}

func channelError(channel driver.Channel, err error) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf("channel %q: %w", channel.Name, err)}
}
