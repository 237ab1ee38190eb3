package iomodule

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

// FollowProbes follows probes over mutual TLS, with the controllers' certificate; each probe is verified as one of its
// namespace (P-11, P-12).
func FollowProbes(controllers *authority.ControllerClient, dial probeclient.Dial, c clock.Clock) Follow {
	return func(ctx context.Context, namespace, address string, handle func(probeclient.Update)) error {
		return probeclient.New(address, namespace, probeclient.CredentialsOf(controllers, namespace), dial, c).Watch(ctx, handle)
	}
}
