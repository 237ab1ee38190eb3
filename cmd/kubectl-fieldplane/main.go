// kubectl-fieldplane is the kubectl plugin of fieldplane: kubectl runs it as "kubectl fieldplane".
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fieldplane/fieldplane/cmd/kubectl-fieldplane/app"
)

func main() {
	os.Exit(app.Run(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:]))
}
