package app

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// tone is how urgent a text is. It is shown as a colour where colours are, and never by it alone.
type tone int

const (
	plain tone = iota
	fine
	doubtful
	wrong
	aside
	heading
)

// sgr is the parameter of ECMA-48's SGR that shows a tone.
func (t tone) sgr() string {
	return map[tone]string{fine: "32", doubtful: "33", wrong: "1;31", aside: "2", heading: "1"}[t]
}

// span is a piece of a line. Its text is clean: nothing in it moves the cursor.
type span struct {
	text string
	tone tone
}

// line is a line of output.
type line []span

func text(pieces ...string) line { return line{{text: clean(strings.Join(pieces, ""))}} }

// render writes a line as it is shown, at most so many columns of it; 0 is all.
func (l line) render(width int, colours bool) string {
	if len(l) > 0 {
		// Spaces at the end would only be copied with the text.
		last := l[len(l)-1]
		last.text = strings.TrimRight(last.text, " ")
		l = append(l[:len(l)-1:len(l)-1], last)
	}
	var out strings.Builder
	room := width
	for _, piece := range l {
		if width > 0 {
			piece.text = cut(piece.text, room)
			room -= columnsOf(piece.text)
		}
		if piece.text == "" {
			continue
		}
		if code := piece.tone.sgr(); colours && code != "" {
			out.WriteString("\x1b[" + code + "m" + piece.text + "\x1b[0m")
		} else {
			out.WriteString(piece.text)
		}
	}
	return out.String()
}

// columnsOf is how many columns of a terminal a text takes. It is a guess for East Asian scripts, where fonts differ: a
// terminal that is drawn on is told not to wrap, so that a wrong guess costs the end of a line and not the picture.
func columnsOf(text string) int {
	if isASCII(text) {
		return len(text)
	}
	count := 0
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0x1F300 && r < 0x1FB00, r >= 0xFF01 && r <= 0xFF60:
			count += 2
		default:
			count++
		}
	}
	return count
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// cut shortens a text to so many columns, and shows that it did.
func cut(text string, width int) string {
	switch {
	case width <= 0:
		return ""
	case columnsOf(text) <= width:
		return text
	}
	taken := 0
	for i, r := range text {
		if taken += columnsOf(string(r)); taken > width-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// grid is a table whose cells have tones. The columns are as far apart as kubectl's.
type grid struct {
	header []string
	rows   []line
	// least are widths below which no column gets, so that a table that is drawn again and again does not jump.
	least []int
}

const gap = "   "

func (g *grid) add(cells ...span) {
	for i := range cells {
		cells[i].text = orNone(cells[i].text)
	}
	g.rows = append(g.rows, cells)
}

// widths are those of the columns; what is shorter is filled up.
func (g *grid) widths() []int {
	widths := make([]int, len(g.header))
	copy(widths, g.least)
	for i, name := range g.header {
		widths[i] = max(widths[i], columnsOf(name))
	}
	for _, row := range g.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], columnsOf(cell.text))
		}
	}
	return widths
}

// lines are the lines of the table, the headers first unless they are left out.
func (g *grid) lines(noHeaders bool) []line {
	widths := g.widths()
	var out []line
	if !noHeaders {
		names := make(line, len(g.header))
		for i, name := range g.header {
			names[i] = span{name, heading}
		}
		out = append(out, align(names, widths))
	}
	for _, row := range g.rows {
		out = append(out, align(row, widths))
	}
	return out
}

// align fills cells up to the widths of their columns, but for the last.
func align(cells line, widths []int) line {
	var out line
	for i, cell := range cells {
		out = append(out, cell)
		if i < len(cells)-1 {
			out = append(out, span{text: strings.Repeat(" ", max(0, widths[i]-columnsOf(cell.text))) + gap})
		}
	}
	return out
}
