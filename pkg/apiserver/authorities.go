package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

const (
	// authoritiesPollPeriod is how often a start looks whether it knows the host cluster's authorities.
	authoritiesPollPeriod = 10 * time.Millisecond
	// authoritiesPatience is how long a start waits for that.
	authoritiesPatience = time.Minute
)

// lookedUp are the keys of the host cluster's ConfigMap under which the server looks for authorities, as far as no flag names a
// file instead, or allows that there are none.
func lookedUp(options *genericoptions.DelegatingAuthenticationOptions) []string {
	var keys []string
	if options.SkipInClusterLookup || options.TolerateInClusterLookupFailure {
		return nil
	}
	if options.ClientCert == (genericoptions.ClientCertAuthenticationOptions{}) {
		keys = append(keys, "client-ca-file")
	}
	if options.RequestHeader.ClientCAFile == "" {
		keys = append(keys, "requestheader-client-ca-file")
	}
	return keys
}

// authorities are the certificates that a client's is believed by. They are kept up to date from before the server listens, where
// the library would begin when it does.
type authorities struct {
	dynamiccertificates.CAContentProvider
	// keys are those of the host cluster's ConfigMap.
	keys []string

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
}

// newAuthorities wraps what the options have made. It hides that this can be run, so that the library does not.
func newAuthorities(source dynamiccertificates.CAContentProvider, keys []string) *authorities {
	a := &authorities{CAContentProvider: source, keys: keys}
	// The source reads its listeners without a lock, so it must know them before it runs.
	source.AddListener(a)
	return a
}

// AddListener tells listener of every later change.
func (a *authorities) AddListener(listener dynamiccertificates.Listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, listener)
}

// Enqueue passes on that something has changed.
func (a *authorities) Enqueue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, listener := range a.listeners {
		listener.Enqueue()
	}
}

// LearnAuthorities returns when the server knows by which authorities the host cluster tells users and the front proxy, and keeps
// that up to date until the server has stopped.
//
// Call it before the server listens. Until it knows them it takes everybody for anonymous and refuses what they may do. Worse, a
// client that is told of the one authority and not of the other sends no certificate, and stays anonymous for as long as its
// connection lasts; the kube-apiserver sends all users' requests over one connection.
func (s *Server) LearnAuthorities(ctx context.Context) error {
	if s.authorities == nil {
		return nil
	}
	source, ok := s.authorities.CAContentProvider.(dynamiccertificates.ControllerRunner)
	if !ok {
		return nil
	}
	// Connections come until the server has drained, which is after ctx has ended.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.Generic.RegisterDestroyFunc(stop)
	source.Run(running, 1)

	var missing error
	err := wait.PollUntilContextTimeout(ctx, authoritiesPollPeriod, authoritiesPatience, true, func(ctx context.Context) (bool, error) {
		missing = s.missingAuthority(ctx)
		return missing == nil, nil
	})
	if err != nil {
		stop()
		return fmt.Errorf("authorities of client certificates: %w", errors.Join(missing, err))
	}
	return nil
}

// missingAuthority says which of the authorities that the host cluster names now is not known yet.
func (s *Server) missingAuthority(ctx context.Context) error {
	if len(s.authorities.keys) == 0 {
		return nil
	}
	configMap, err := s.HostClient.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return err
	}
	known := s.authorities.CurrentCABundleContent()
	for _, key := range s.authorities.keys {
		// A host cluster whose users have no certificates has no authority for them.
		if !bytes.Contains(known, bytes.TrimSpace([]byte(configMap.Data[key]))) {
			return fmt.Errorf("%s of ConfigMap %s/%s is not loaded", key, configMap.Namespace, configMap.Name)
		}
	}
	return nil
}
