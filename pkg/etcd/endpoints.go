package etcd

import (
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Endpoints say how an etcd is reached: the embedded one by its socket, one of somebody's own by its addresses.
type Endpoints struct {
	Servers                          []string
	CertFile, KeyFile, TrustedCAFile string
}

// Dial returns a client of the etcd. It does not wait for an answer: the first request does.
func (e Endpoints) Dial() (*clientv3.Client, error) {
	config := clientv3.Config{Endpoints: e.Servers, Logger: zap.NewNop()}
	if e.CertFile != "" || e.KeyFile != "" || e.TrustedCAFile != "" {
		info := transport.TLSInfo{CertFile: e.CertFile, KeyFile: e.KeyFile, TrustedCAFile: e.TrustedCAFile}
		tls, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("--etcd-certfile, --etcd-keyfile or --etcd-cafile: %w", err)
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("etcd at %v: %w", e.Servers, err)
	}
	return client, nil
}
