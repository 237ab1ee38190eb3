package pki

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

// Overlap is how long two CAs are trusted before the second one signs anything,
// and again how long after that. In that time the APIServices, which
// takes seconds, and all probes and runtimes, which takes minutes, learn to
// trust the new one, and are given certificates of it, before the old one ends.
const Overlap = 24 * time.Hour

const (
	// nextCertKey and nextKeyKey are the CA that will sign, which everybody
	// trusts already.
	nextCertKey = "next-ca.crt"
	nextKeyKey  = "next-ca.key"
	// formerCertKey is the CA that has signed, which everybody still trusts until
	// formerUntilKey. Its key is no more.
	formerCertKey  = "former-ca.crt"
	formerUntilKey = "former-ca.until"
)

// succession brings the replacement of the CA as far as it may go now, and
// returns the one that signs, with the trust that goes with it. Each step is one
// write of the Secret, so that replicas take it once, and whoever comes late
// takes it as the others did:
//
//	one CA -> the next is trusted, too -> it signs, and the former is still trusted -> one CA
//
// Time alone does not make the next one sign, since nobody may have been told of
// it meanwhile: known says whether this process has told everybody.
func succession(secret *corev1.Secret, ca *authority.Authority, now time.Time, known func(next []byte) bool) (_ *authority.Authority, why string, err error) {
	data := secret.Data
	if until, err := time.Parse(time.RFC3339, string(data[formerUntilKey])); len(data[formerCertKey]) > 0 && (err != nil || !now.Before(until)) {
		delete(data, formerCertKey)
		delete(data, formerUntilKey)
		why = "the former CA is not trusted any more"
	}

	next, nextErr := authority.Load(authority.KeyPair{CertPEM: data[nextCertKey], KeyPEM: data[nextKeyKey]})
	_, asked := secret.Annotations[RotateAnnotation]
	switch {
	case nextErr != nil && (asked || ca.Aging(now)):
		// One that cannot be read has signed nothing.
		if next, err = authority.New(now); err != nil {
			return nil, "", err
		}
		pair, err := next.KeyPair()
		if err != nil {
			return nil, "", err
		}
		data[nextCertKey], data[nextKeyKey] = pair.CertPEM, pair.KeyPEM
		why = "there is another CA, which is trusted from now on, and signs after " + Overlap.String()
	case nextErr == nil && now.Sub(next.Made()) >= Overlap && known(data[nextCertKey]):
		data[formerCertKey], data[formerUntilKey] = ca.CertificatePEM(), []byte(now.Add(Overlap).UTC().Format(time.RFC3339))
		data[caCertKey], data[caKeyKey] = data[nextCertKey], data[nextKeyKey]
		delete(data, nextCertKey)
		delete(data, nextKeyKey)
		ca, next = next, nil
		why = "another CA signs from now on"
	case nextErr != nil:
		next = nil
	}
	if asked {
		delete(secret.Annotations, RotateAnnotation)
		if why == "" {
			why = "another CA was asked for, and is on its way already"
		}
	}

	if next != nil {
		if err := ca.Trust(next.CertificatePEM()); err != nil {
			return nil, "", err
		}
	}
	if former := data[formerCertKey]; len(former) > 0 {
		if err := ca.Trust(former); err != nil {
			// Nobody can use it, then.
			delete(data, formerCertKey)
			delete(data, formerUntilKey)
			why = "the former CA cannot be read"
		}
	}
	return ca, why, nil
}

// forgetSuccession ends whatever was under way.
func forgetSuccession(secret *corev1.Secret) {
	for _, key := range []string{nextCertKey, nextKeyKey, formerCertKey, formerUntilKey} {
		delete(secret.Data, key)
	}
	delete(secret.Annotations, RotateAnnotation)
}
