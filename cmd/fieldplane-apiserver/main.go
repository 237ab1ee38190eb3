// Command fieldplane-apiserver serves the groups physical.fieldplane.dev and
// talos.fieldplane.dev behind a cluster's kube-apiserver, and runs their
// controllers.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"github.com/fieldplane/fieldplane/cmd/fieldplane-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand(genericapiserver.SetupSignalContext())))
}
