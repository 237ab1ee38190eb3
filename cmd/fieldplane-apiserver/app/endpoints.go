package app

import (
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/fieldplane/fieldplane/pkg/etcd"
)

// endpointsOf says how the etcd of these options is reached.
func endpointsOf(transport storagebackend.TransportConfig) etcd.Endpoints {
	return etcd.Endpoints{
		Servers: transport.ServerList, CertFile: transport.CertFile, KeyFile: transport.KeyFile, TrustedCAFile: transport.TrustedCAFile,
	}
}

// restoreMarks is where the store of these options says that it was restored. Call the function when the controllers have stopped.
func restoreMarks(options *Options) (*etcd.Marks, func(), error) {
	client, err := endpointsOf(options.Recommended.Etcd.StorageConfig.Transport).Dial()
	if err != nil {
		return nil, nil, err
	}
	return etcd.NewMarks(client, options.Recommended.Etcd.StorageConfig.Prefix), func() { client.Close() }, nil
}
