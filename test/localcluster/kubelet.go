package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"

	"github.com/fieldplane/fieldplane/test/localcluster/provider"
)

// kubeletServer answers what the kube-apiserver asks a node for `kubectl logs`.
type kubeletServer struct {
	server *http.Server
	port   int
}

func startKubeletServer(p *pki, pods *provider.Provider) (*kubeletServer, error) {
	certificate, err := tls.LoadX509KeyPair(p.path("kubelet-serving.crt"), p.path("kubelet-serving.key"))
	if err != nil {
		return nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(p.cluster.cert)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		// The cluster's CA signs every user; only the kube-apiserver, which has asked
		// RBAC, may read logs here.
		VerifyConnection: func(state tls.ConnectionState) error {
			if name := state.PeerCertificates[0].Subject.CommonName; name != kubeletClientName {
				return fmt.Errorf("%q may not use the kubelet endpoint", name)
			}
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, request *http.Request) {
		serveLogs(w, request, pods)
	})
	k := &kubeletServer{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		port:   listener.Addr().(*net.TCPAddr).Port,
	}
	go func() { _ = k.server.Serve(listener) }()
	return k, nil
}

func (k *kubeletServer) stop() { _ = k.server.Close() }

func serveLogs(w http.ResponseWriter, request *http.Request, pods *provider.Provider) {
	query := request.URL.Query()
	options := provider.LogOptions{
		Previous:  query.Get("previous") == "true",
		Follow:    query.Get("follow") == "true",
		TailLines: -1,
	}
	if text := query.Get("tailLines"); text != "" {
		lines, err := strconv.Atoi(text)
		if err != nil {
			http.Error(w, "tailLines: "+err.Error(), http.StatusBadRequest)
			return
		}
		options.TailLines = lines
	}
	if text := query.Get("limitBytes"); text != "" {
		limit, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			http.Error(w, "limitBytes: "+err.Error(), http.StatusBadRequest)
			return
		}
		options.LimitBytes = limit
	}
	flush := func() { _ = http.NewResponseController(w).Flush() }
	err := pods.WriteLogs(request.Context(), w, flush, request.PathValue("namespace"), request.PathValue("pod"), request.PathValue("container"), options)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case errdefs.IsNotFound(err):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
