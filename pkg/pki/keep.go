package pki

import (
	"bytes"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// keepPeriod is how often a running server looks after its certificates. What another replica has written is in use after that
// long.
const keepPeriod = 10 * time.Second

// spreading is how long a server runs with a new CA trusted until everybody knows of it: a namespace's certificate is looked at
// every 10 minutes at least, and a kubelet needs two to put it into a pod.
const spreading = 15 * time.Minute

// Keeper keeps a running server's CA and serving certificate as EnsureServing would have them, without a restart.
type Keeper struct {
	// Secrets is the client for the server's own namespace, Names are those that the server is verified by.
	Secrets typedcorev1.SecretInterface
	Names   []string
	Clock   clock.WithTicker
	// Credentials are what EnsureServing returned; whoever uses their Authority uses its successor from then on.
	Credentials *Credentials
	// Serving is what connections are accepted with.
	Serving *ServingCertificate

	// last is the Secret as it was seen last.
	last *corev1.Secret
	// next is the CA that will sign, and since when this server has told everybody to trust it.
	next      []byte
	nextSince time.Time
}

// Run keeps them until the context ends. It is called once.
func (k *Keeper) Run(ctx context.Context) {
	ticker := k.Clock.NewTicker(keepPeriod)
	defer ticker.Stop()
	for {
		// What does not work now works later: certificates are renewed long before they end.
		if err := k.keep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot look after the serving certificate")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (k *Keeper) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepPeriod)
	defer cancel()
	var (
		credentials *Credentials
		seen        *corev1.Secret
	)
	err := ensureSecret(ctx, k.Secrets, ServingSecretName, func(secret *corev1.Secret) (why string, err error) {
		// A Secret that is gone is put back: a new CA would cut off every probe, for what may be a mistake. Who wants a new one at once
		// stops the servers first.
		lost := len(secret.Data) == 0 && k.last != nil
		if lost {
			secret.Data = maps.Clone(k.last.Data)
		}
		if credentials, why, err = serving(secret, k.Clock, k.Names, k.known); lost && why == "" {
			why = "it was gone"
		}
		seen = secret
		return why, err
	})
	if err != nil {
		return err
	}
	k.last = seen.DeepCopy()
	if next := seen.Data[nextCertKey]; !bytes.Equal(k.next, next) {
		k.next, k.nextSince = next, k.Clock.Now()
	}
	// Trust comes before what it is needed for.
	k.Credentials.Authority.Become(credentials.Authority)
	if current, _ := k.Serving.CurrentCertKeyContent(); bytes.Equal(current, credentials.Serving.CertPEM) {
		return nil
	}
	if err := k.Serving.Replace(credentials.Serving); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Serving with another certificate", "secret", ServingSecretName)
	return nil
}

func (k *Keeper) known(next []byte) bool {
	return bytes.Equal(k.next, next) && k.Clock.Since(k.nextSince) >= spreading
}
