package localcluster

import (
	"fmt"
	"net"
	"strconv"
)

const (
	serviceCIDR          = "10.96.0.0/16"
	frontProxyClientName = "front-proxy-client"
	kubeletClientName    = "kube-apiserver-kubelet-client"
)

// firstServiceIP is the address of the Service "kubernetes".
var firstServiceIP = net.IPv4(10, 96, 0, 1)

// The flags of each component. None of them changes a feature gate, an admission
// plugin or a cache: what passes here has to pass on a user's cluster.

func (c *Cluster) etcdArgs() []string {
	socket, peer := "unix://"+c.etcdSocket, "unix://"+c.etcdSocket+".peer"
	return []string{
		"--name=local",
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + socket,
		"--advertise-client-urls=" + socket,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=local=" + peer,
		"--log-level=warn",
		"--quota-backend-bytes=" + strconv.Itoa(8<<30),
		"--auto-compaction-retention=0",
	}
}

func (c *Cluster) apiserverArgs() []string {
	key := c.pki.path
	return []string{
		"--etcd-servers=unix://" + c.etcdSocket,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports.APIServer),
		// Endpoints refuse loopback addresses: nothing is published, and the address
		// (documentation range) is never dialled.
		"--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + key("kube-apiserver.crt"),
		"--tls-private-key-file=" + key("kube-apiserver.key"),
		"--client-ca-file=" + key("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--profiling=false",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + key("service-account.key"),
		"--service-account-key-file=" + key("service-account.pub"),
		fmt.Sprintf("--service-account-max-token-expiration=%ds", tokenLifetimeSeconds),
		// The aggregator. With --enable-aggregator-routing it would refuse the
		// ExternalName Service through which it reaches a server on loopback.
		"--proxy-client-cert-file=" + key("front-proxy-client.crt"),
		"--proxy-client-key-file=" + key("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + key("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyClientName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		// kubectl logs.
		"--kubelet-client-certificate=" + key("kubelet-client.crt"),
		"--kubelet-client-key=" + key("kubelet-client.key"),
		"--kubelet-certificate-authority=" + key("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
	}
}

func (c *Cluster) controllerManagerArgs() []string {
	key := c.pki.path
	kubeconfig := c.path("kubeconfig", "kube-controller-manager")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports.ControllerManager),
		"--tls-cert-file=" + key("kube-controller-manager-serving.crt"),
		"--tls-private-key-file=" + key("kube-controller-manager-serving.key"),
		"--leader-elect=false",
		"--profiling=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + key("service-account.key"),
		"--root-ca-file=" + key("ca.crt"),
		"--cluster-signing-cert-file=" + key("ca.crt"),
		"--cluster-signing-key-file=" + key("ca.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
		// The default of 20 requests a second takes seconds to make the controllers'
		// ServiceAccounts at the first start.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
}

func (c *Cluster) schedulerArgs() []string {
	key := c.pki.path
	kubeconfig := c.path("kubeconfig", "kube-scheduler")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports.Scheduler),
		"--tls-cert-file=" + key("kube-scheduler-serving.crt"),
		"--tls-private-key-file=" + key("kube-scheduler-serving.key"),
		"--leader-elect=false",
		"--profiling=false",
	}
}
