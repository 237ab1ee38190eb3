package machineconfiguration

import (
	"fmt"
	"strings"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/installdisk"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// checkInstallDisk makes sure that the installation takes exactly one disk, and the one that was approved: a machine's
// disks may have been changed since, and the paths of disks change with every boot. An empty reason is consent (T-18).
func checkInstallDisk(machine *v1alpha1.TalosMachine, read maintenance.Hardware) (reason, string) {
	disks := hardware.Disks(read)
	disk := installdisk.Only(machine.Spec.Install, disks)

	if disk == nil {
		have := make([]string, len(disks))
		for i, d := range disks {
			have[i] = d.Path
		}

		if len(have) == 0 {
			have = []string{"none"}
		}

		return reasonInstallDiskNotFound, fmt.Sprintf("spec.install means %d of the machine's disks, and must mean exactly one; it has %s",
			installdisk.Choose(machine.Spec.Install, disks).Count, strings.Join(have, ", "))
	}

	approval := machine.Status.Approval
	if approval == nil || approval.InstallDisk == nil || installdisk.Same(*approval.InstallDisk, *disk) {
		return "", ""
	}

	return reasonInstallDiskChanged, fmt.Sprintf("spec.install means another disk than when the machine was approved: %s, not %s; look at the machine and approve it again",
		describeDisk(*disk), describeDisk(*approval.InstallDisk))
}

func describeDisk(disk v1alpha1.MachineDisk) string {
	out := fmt.Sprintf("%s (model %q, serial number %q, %d bytes", disk.Path, disk.Model, disk.Serial, disk.SizeBytes)
	if disk.WWID != "" {
		out += ", " + disk.WWID
	}

	return out + ")"
}
