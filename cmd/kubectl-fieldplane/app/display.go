package app

import (
	"io"
	"os"

	"golang.org/x/term"
)

// display is what a command's output is shown on.
type display struct {
	// draws tells that it is a terminal on which can be drawn over what it shows; elsewhere every line is a line.
	draws bool
	// colours tells that colours are shown, and wanted.
	colours bool
	// size is how many columns and lines the terminal has now; it changes while somebody looks.
	size func() (width, height int)
}

// Where a terminal does not tell its size.
const (
	usualWidth  = 80
	usualHeight = 24
)

// displayOf looks at a stream and at the environment, by the conventions of https://no-color.org.
func displayOf(out io.Writer, getenv func(string) string) display {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || getenv("TERM") == "dumb" {
		return display{size: func() (int, int) { return usualWidth, usualHeight }}
	}
	return display{
		draws:   true,
		colours: getenv("NO_COLOR") == "",
		size: func() (int, int) {
			width, height, err := term.GetSize(int(file.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return usualWidth, usualHeight
			}
			return width, height
		},
	}
}
