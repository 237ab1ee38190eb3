package machinestate

import (
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// drift tells whether the machine runs what it was sent. That is reported and never corrected: whoever changed it may
// have had to (T-18a).
func (d *decision) drift() {
	switch {
	case d.seen.runningProblem != nil:
		d.set(reasonUnreadable, "the configuration that the machine runs cannot be compared: "+d.seen.runningProblem.message)
	case d.seen.runs == "" || perhapsSent(d.status.Update):
		// Nothing is known, or it is just being changed.
	case d.seen.runs == d.status.ConfigHash:
		d.set(reasonAsSent, "the machine runs what it was sent")
	default:
		d.set(reasonChanged, d.drifted())
	}
}

func (d *decision) drifted() string {
	const changed = "the configuration was changed on the machine, not from here"

	if d.want.hash != d.status.ConfigHash {
		return changed + "; the next change from here replaces it"
	}

	text, err := render.Difference(d.want.config, d.seen.running)

	switch {
	case err != nil:
		return changed + "; the difference cannot be told"
	case text == "":
		return changed + ": nothing but secrets differs"
	}

	return changed + ": put the change into configPatches, or take it back there\n" + text
}
