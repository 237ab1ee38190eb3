package driver

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// ParseEndpoint returns the host:port of a SCHEME://HOST[:PORT] endpoint, whose port is the default one when it is absent;
// withPath tells that a path may follow. The error says what to write.
func ParseEndpoint(endpoint, scheme, defaultPort string, withPath bool) (string, error) {
	form := scheme + "://host:port"
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", ConfigurationError("endpoint %q is no URL; write %s", endpoint, form)
	}
	if u.Scheme != scheme {
		return "", ConfigurationError("endpoint %q must begin with %s://", endpoint, scheme)
	}
	if withPath {
		form += "/path"
	}
	host, port := u.Hostname(), u.Port()
	if host == "" || u.User != nil || u.Path != "" && !withPath || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return "", ConfigurationError("endpoint %q must be %s and nothing more", endpoint, form)
	}
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", ConfigurationError("endpoint %q has an empty port", endpoint)
		}
		port = defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", ConfigurationError("endpoint %q: port %s is not between 1 and 65535", endpoint, port)
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

// ConfigurationError is an error of what the module's specification asks for.
func ConfigurationError(format string, args ...any) *Error {
	return &Error{Reason: ReasonConfigurationError, Err: fmt.Errorf(format, args...)}
}
