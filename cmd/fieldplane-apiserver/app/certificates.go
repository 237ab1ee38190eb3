package app

import (
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/pkg/pki"
)

// keepCertificates has the server look after its CA and its serving certificate for as long as it accepts connections.
func keepCertificates(server *apiserver.Server, keeper *pki.Keeper) error {
	return server.Generic.AddPostStartHook("keep-fieldplane-certificates", func(hook genericapiserver.PostStartHookContext) error {
		go keeper.Run(hook.Context)
		return nil
	})
}
