package authority

import (
	"crypto/x509"
	"net"
	"net/url"
)

const identityScheme = "fieldplane"

// ControllersURI is the URI SAN by which a probe knows the server's controllers
// (P-11).
const ControllersURI = identityScheme + "://controllers"

// NamespaceURI is the URI SAN of a namespace's probes and runtimes (P-11,
// P-12).
func NamespaceURI(namespace string) string { return namespaceURL(namespace).String() }

// ProbeServerName is the DNS SAN under which a client verifies a probe of this
// namespace, whatever its pod's address (P-11).
func ProbeServerName(namespace string) string {
	return "io-probe." + namespace + ".fieldplane.internal"
}

func namespaceURL(namespace string) *url.URL {
	return &url.URL{Scheme: identityScheme, Host: "namespace", Path: "/" + namespace}
}

// Serving is the API server's certificate; names are host names and IP
// addresses.
func Serving(names ...string) Leaf {
	leaf := Leaf{
		CommonName: "fieldplane-apiserver",
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		Lifetime:   ServingLifetime,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	return leaf
}

// Controllers is the certificate with which the server's controllers call
// probes (P-11).
func Controllers() Leaf {
	return Leaf{
		CommonName: "fieldplane-controllers",
		URI:        &url.URL{Scheme: identityScheme, Host: "controllers"},
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Lifetime:   ControllersLifetime,
	}
}

// Namespace is the certificate of one namespace's probes, as servers and as
// clients of each other (P-11, P-12).
func Namespace(namespace string) Leaf {
	return Leaf{
		CommonName: "fieldplane:" + namespace,
		DNSNames:   []string{ProbeServerName(namespace)},
		URI:        namespaceURL(namespace),
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		Lifetime:   NamespaceLifetime,
	}
}
