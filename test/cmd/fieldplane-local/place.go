package main

import "path/filepath"

// place is where everything local is kept: below _local, and nowhere else.
type place struct {
	repo, bin, logs, cluster, server string
	kubeconfig, plantSocket, ready   string
}

func newPlace(repo string) place {
	local := filepath.Join(repo, "_local")
	return place{
		repo:        repo,
		bin:         filepath.Join(local, "bin"),
		logs:        filepath.Join(local, "log"),
		cluster:     filepath.Join(local, "data", "cluster"),
		server:      filepath.Join(local, "data", "fieldplane"),
		kubeconfig:  filepath.Join(local, "kubeconfig"),
		plantSocket: filepath.Join(local, "plant.sock"),
		ready:       filepath.Join(local, "ready"),
	}
}
