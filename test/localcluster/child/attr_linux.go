package child

import "syscall"

// sysProcAttr puts the child into a process group of its own, and has the
// kernel end it if this process is killed without a chance to stop it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
