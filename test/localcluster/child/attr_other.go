//go:build !linux

package child

import "syscall"

// sysProcAttr puts the child into a process group of its own; outside Linux
// nothing ends it when its parent is killed.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
