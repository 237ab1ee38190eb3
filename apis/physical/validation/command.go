package validation

import (
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// The bounds of what a sender says of a command or a write.
const (
	maxCommandID = 128
	maxReason    = 1024
)

// UnitCommands are all commands, those that change the mode last.
func UnitCommands() []physical.UnitCommandName {
	var all []physical.UnitCommandName
	for _, command := range isa88.Commands() {
		all = append(all, physical.UnitCommandName(command))
	}
	return append(all, physical.CommandAutomatic, physical.CommandManual)
}

// CanOverride tells whether a command leads to Running, so that there is something that it could pass over (P-16c).
func CanOverride(command physical.UnitCommandName) bool {
	switch command {
	case physical.CommandStart, physical.CommandResume, physical.CommandRestart:
		return true
	default:
		return false
	}
}

// ValidateUnitCommand checks a command to a Unit (P-16c). Whether the Unit's state allows it is not asked here.
func ValidateUnitCommand(command *physical.UnitCommand) field.ErrorList {
	var errs field.ErrorList
	spec, path := &command.Spec, field.NewPath("spec")
	errs = append(errs, validateText(path.Child("id"), spec.ID, maxCommandID)...)
	errs = append(errs, validateText(path.Child("reason"), spec.Reason, maxReason)...)
	switch name := path.Child("command"); {
	case spec.Command == "":
		errs = append(errs, field.Required(name, ""))
	case !slices.Contains(UnitCommands(), spec.Command):
		errs = append(errs, field.NotSupported(name, cut(string(spec.Command)), UnitCommands()))
	case spec.Override && !CanOverride(spec.Command):
		errs = append(errs, field.Forbidden(path.Child("override"), string(spec.Command)+" asks nothing of the modules, so that there is nothing to override; leave it out"))
	}
	if spec.Override && spec.Reason == "" {
		errs = append(errs, field.Required(path.Child("reason"), "spec.override passes over modules that are not Online: say why"))
	}
	return errs
}

// validateText checks a text that people read on a terminal.
func validateText(path *field.Path, text string, most int) field.ErrorList {
	switch {
	case !utf8.ValidString(text):
		return field.ErrorList{field.Invalid(path, strconv.QuoteToASCII(cut(text)), "must be valid UTF-8")}
	case utf8.RuneCountInString(text) > most:
		return field.ErrorList{field.TooLongCharacters(path, cut(text), most)}
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return field.ErrorList{field.Invalid(path, strconv.QuoteToASCII(cut(text)), "must consist of printable characters and spaces: it is shown on terminals")}
		}
	}
	return nil
}

// cut is the beginning of a text, enough of it to be told in an error.
func cut(text string) string {
	const most = 64
	count := 0
	for i := range text {
		if count++; count > most {
			return text[:i] + "…"
		}
	}
	return text
}
