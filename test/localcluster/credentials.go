package localcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetimeSeconds is how long ServiceAccount tokens of the local cluster
// live: longer than any `make up` (the default of an hour does not).
const tokenLifetimeSeconds = 365 * 24 * 60 * 60

// AdminConfig returns a client configuration of group system:masters, without
// client-side rate limiting.
func (c *Cluster) AdminConfig() *rest.Config {
	return rest.CopyConfig(c.admin)
}

// UserConfig returns a client configuration that authenticates as user and
// groups by a client certificate, without client-side rate limiting.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	certPEM, keyPEM, err := c.pki.cluster.issue(leafRequest{commonName: user, organizations: groups})
	if err != nil {
		return nil, fmt.Errorf("client certificate of %q: %w", user, err)
	}
	return c.config(rest.TLSClientConfig{CertData: certPEM, KeyData: keyPEM}), nil
}

// ServiceAccountConfig returns a client configuration that authenticates as the
// ServiceAccount, by a token valid for a year.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	seconds := int64(tokenLifetimeSeconds)
	request, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	cfg := c.config(rest.TLSClientConfig{})
	cfg.BearerToken = request.Status.Token
	return cfg, nil
}

// ServiceAccountKubeconfig writes a kubeconfig for the ServiceAccount, valid for
// a year, and returns its path. The ServiceAccount must exist; a token ends with it.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	cfg, err := c.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.options.Dir, "kubeconfig", namespace+"."+name)
	return path, WriteKubeconfig(path, cfg)
}

func (c *Cluster) config(tls rest.TLSClientConfig) *rest.Config {
	tls.CAData = c.pki.cluster.certPEM
	return &rest.Config{Host: c.URL(), TLSClientConfig: tls, QPS: -1}
}

// WriteKubeconfig writes cfg as a kubeconfig file with its credentials inline,
// readable by the owner alone.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "fieldplane-local"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData, CertificateAuthority: cfg.CAFile}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData,
		ClientCertificate: cfg.CertFile, ClientKey: cfg.KeyFile,
		Token: cfg.BearerToken,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	// Written aside and renamed: someone may be reading the previous one.
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}
