package machinestate

import (
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
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

	return changed + d.difference
}

// differenceOf tells in what a configuration was changed, without secrets: what Talos knows to be one goes, and what the
// bundle has, wherever somebody wrote it (T-15).
func differenceOf(want wanted, seen sighting, bundle *secrets.Bundle) string {
	if seen.runs == "" || want.hash == "" || seen.runs == want.hash {
		return ""
	}

	text, err := render.Difference(want.config, seen.running)

	switch {
	case err != nil:
		return "; the difference cannot be told"
	case text == "":
		return ": nothing but secrets differs"
	}

	return notice.Redacted(": put the change into configPatches, or take it back there\n"+text, bundle)
}
