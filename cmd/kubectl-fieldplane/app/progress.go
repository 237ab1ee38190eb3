package app

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

const (
	// barWidth leaves room for the text on a line of 80 characters.
	barWidth = 24
	// lineEvery is how often a log that nobody watches gets a line.
	lineEvery = 5 * time.Second
)

// progress shows how something goes on: on a terminal as one line that is drawn over, elsewhere as lines, and no control
// character reaches a file or a pipe.
type progress struct {
	out   io.Writer
	draws bool
	clock clock.PassiveClock

	drawn  int
	said   string
	saidAt time.Time
}

// show tells how far it is; of is 0 while nothing can be counted.
func (p *progress) show(done, of int32, text string) {
	if p.draws {
		line := text
		if of > 0 {
			filled := int(barWidth * int64(min(max(done, 0), of)) / int64(of))
			line = "[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "] " + text
		}
		fmt.Fprint(p.out, "\r"+line+strings.Repeat(" ", max(0, p.drawn-len(line))))
		p.drawn = len(line)
		return
	}
	now := p.clock.Now()
	if text == p.said || p.said != "" && now.Sub(p.saidAt) < lineEvery {
		return
	}
	fmt.Fprintln(p.out, text)
	p.said, p.saidAt = text, now
}

// end leaves the line empty for what comes after it.
func (p *progress) end() {
	if p.drawn > 0 {
		fmt.Fprint(p.out, "\r"+strings.Repeat(" ", p.drawn)+"\r")
		p.drawn = 0
	}
}
