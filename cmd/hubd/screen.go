package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen shows a table that changes: in place on a terminal that is large
// enough, otherwise only at the end. It is for one goroutine.
type screen struct {
	out     io.Writer
	live    bool
	columns int   // of the terminal, if live; longer lines are cut
	drawn   int   // lines of the table that is the last thing on the terminal
	err     error // the first of writing; nothing is written after it
}

// What a table that is drawn in place needs.
const (
	screenRows    = 24
	screenColumns = 80
)

func newScreen(out io.Writer, dumb bool) *screen {
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok && !dumb {
		rows, columns := terminalSize(file)
		s.live, s.columns = rows >= screenRows && columns >= screenColumns, columns
	}
	return s
}

// interval is how often there should be news.
func (s *screen) interval() time.Duration {
	if s.live {
		return 250 * time.Millisecond
	}
	return 5 * time.Second
}

// print writes text that stays.
func (s *screen) print(text string) {
	s.drawn = 0
	s.write(text)
}

// table writes a table of whole lines, over the one before if that is last.
func (s *screen) table(text string) {
	if !s.live {
		s.write(text)
		return
	}
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	s.drawn = len(lines)
	for _, line := range lines {
		runes := []rune(line)
		b.WriteString(string(runes[:min(len(runes), s.columns)]))
		b.WriteString("\x1b[K\n") // what is left of an older line is erased
	}
	b.WriteString("\x1b[J") // and of older lines below
	s.write(b.String())
}

func (s *screen) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.out, text)
	}
}
