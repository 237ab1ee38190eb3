package app

import (
	"io"
	"strings"
)

// screen is a terminal of which the whole is drawn over. What it showed before comes back when it is closed, so that the
// pictures do not fill what the user can scroll back to.
type screen struct {
	out     io.Writer
	colours bool
	open    bool
}

const (
	// enterScreen keeps what is shown aside, hides the cursor, and has long lines cut instead of wrapped: a line that is wider
	// than it was thought to be would push all others down.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// draw shows lines from the top, in one write: half a picture would flicker.
func (s *screen) draw(lines []line, width, height int) error {
	var out strings.Builder
	if !s.open {
		out.WriteString(enterScreen)
		s.open = true
	}
	out.WriteString(home)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(line.render(width, s.colours))
		out.WriteString(clearLine)
	}
	out.WriteString(clearRest)
	_, err := io.WriteString(s.out, out.String())
	return err
}

// close gives the terminal back.
func (s *screen) close() {
	if s.open {
		_, _ = io.WriteString(s.out, leaveScreen)
		s.open = false
	}
}
