package app

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// question is asked before something that cannot be taken back.
type question struct {
	// text ends with a question mark.
	text string
	// done ends the sentence "nothing was": what a no leaves undone.
	done string
	// flag is what answers it where nobody can.
	flag string
}

// ask asks whoever sits at the terminal. Silence, end of input and anything but yes mean no.
func (p plugin) ask(q question) error {
	if !p.interactive() {
		return told("nothing was "+q.done+": there is no terminal to ask for confirmation on",
			"Read what is above, then run it again with "+q.flag+".")
	}
	fmt.Fprintf(p.Out, "\n%s [y/N]: ", q.text)
	answer, err := readLine(p.In)
	if err != nil && !errors.Is(err, io.EOF) {
		return told("nothing was "+q.done+": the answer cannot be read: "+err.Error(), "Run it again, or with "+q.flag+".")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return told("nothing was "+q.done+": the answer was not yes", "The machine is as it was; nothing was written.")
	}
}

// readLine takes one line and nothing after it: the next question has an answer of its own.
func readLine(in io.Reader) (string, error) {
	const longest = 1024
	var line []byte
	for one := make([]byte, 1); len(line) < longest; {
		n, err := in.Read(one)
		if n == 1 && one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[:n]...)
		if err != nil {
			return string(line), err
		}
	}
	return string(line), nil
}
