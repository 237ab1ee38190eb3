package app

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestAGridIsAlignedWhateverIsInItsCells(t *testing.T) {
	table := &grid{header: []string{"A", "LONGER", "C"}}
	table.add(span{text: "°C"}, span{text: ""}, span{text: "x"})
	table.add(span{text: "加圧"}, span{text: "a\nb\x1b"}, span{text: "last "})
	var out []string
	for _, line := range table.lines(false) {
		out = append(out, line.render(0, false))
	}
	if have, want := strings.Join(out, "\n"), "A      LONGER   C\n°C     <none>   x\n加圧   a b\uFFFD     last"; have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
	table.least = []int{10, 0, 0}
	if have := table.lines(true)[0].render(0, false); have != "°C           <none>   x" {
		t.Errorf("%q", have)
	}
}

func TestALineIsCutAtTheEndOfTheTerminalAndColoursTakeNoRoom(t *testing.T) {
	row := line{{"abc", wrong}, {"   ", plain}, {"def", fine}}
	for _, test := range []struct {
		width   int
		colours bool
		want    string
	}{
		{0, false, "abc   def"},
		{0, true, "\x1b[1;31mabc\x1b[0m   \x1b[32mdef\x1b[0m"},
		{9, true, "\x1b[1;31mabc\x1b[0m   \x1b[32mdef\x1b[0m"},
		{8, true, "\x1b[1;31mabc\x1b[0m   \x1b[32md…\x1b[0m"},
		{7, false, "abc   …"},
		{3, false, "abc"},
		{2, false, "a…"},
		{1, false, "…"},
	} {
		if have := row.render(test.width, test.colours); have != test.want {
			t.Errorf("%d, %t: have %q, want %q", test.width, test.colours, have, test.want)
		}
	}
	for text, want := range map[string]int{"": 0, "abc": 3, "°C": 2, "e\u0301": 1, "加圧": 4, "…": 1} {
		if have := columnsOf(text); have != want {
			t.Errorf("%q takes %d columns, not %d", text, have, want)
		}
	}
	if have := cut("加圧ポンプ", 4); have != "加…" {
		t.Errorf("%q", have)
	}
}

func TestAScreenIsGivenBackAsItWas(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, colours: true}
	s.close()
	if out.Len() != 0 {
		t.Errorf("a screen that was never opened is closed: %q", out.String())
	}
	if err := s.draw([]line{{{"one", wrong}}, {{"two", plain}}, {{"three", plain}}}, 4, 2); err != nil {
		t.Fatal(err)
	}
	_ = s.draw(nil, 4, 2)
	s.close()
	s.close()
	want := enterScreen + home + "\x1b[1;31mone\x1b[0m" + clearLine + "\r\ntwo" + clearLine + clearRest + home + clearRest + leaveScreen
	if have := out.String(); have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}

func TestOnlyATerminalIsDrawnOn(t *testing.T) {
	environment := func(string) string { return "" }
	to := displayOf(&bytes.Buffer{}, environment)
	if width, height := to.size(); to.draws || to.colours || width != usualWidth || height != usualHeight {
		t.Errorf("%+v", to)
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if to := displayOf(file, environment); to.draws || to.colours {
		t.Errorf("%+v", to)
	}
}
