package localcluster

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
)

// ports are the loopback ports of the control plane. They are kept in the data
// directory, so that a kubeconfig given out stays good after a restart.
type ports struct {
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

// choosePorts takes the ports of the last start where they are still free, and
// free ones elsewhere.
func choosePorts(path string) (ports, error) {
	var chosen ports
	if content, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(content, &chosen); err != nil {
			return chosen, fmt.Errorf("%s: %w", path, err)
		}
	}
	// All listeners stay open until the last port is found, so that no two are equal.
	for _, port := range []*int{&chosen.APIServer, &chosen.ControllerManager, &chosen.Scheduler} {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)))
		if err != nil {
			listener, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return chosen, fmt.Errorf("no free loopback port: %w", err)
		}
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	content, err := json.Marshal(chosen)
	if err != nil {
		return chosen, err
	}
	return chosen, os.WriteFile(path, content, 0o600)
}
