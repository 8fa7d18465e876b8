// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// emulator is a terminal that knows what a screen writes. It does not scroll.
type emulator struct {
	t      *testing.T
	cells  [][]rune
	x, y   int
	hidden bool
}

var sequence = regexp.MustCompile(`^\x1b\[(\??)([0-9;]*)([A-Za-z])`)

func (e *emulator) Write(p []byte) (int, error) {
	for s := string(p); s != ""; {
		if m := sequence.FindStringSubmatch(s); m != nil {
			e.do(m[1]+m[3], m[2])
			s = s[len(m[0]):]
			continue
		}
		r := []rune(s)[0]
		s = s[len(string(r)):]
		switch r {
		case '\r':
			e.x = 0
		case '\n':
			e.x, e.y = 0, e.y+1 // as the line discipline makes it
		case '\x1b':
			e.t.Fatalf("an unknown escape sequence: %q", s)
		default:
			for len(e.cells) <= e.y {
				e.cells = append(e.cells, nil)
			}
			for len(e.cells[e.y]) <= e.x {
				e.cells[e.y] = append(e.cells[e.y], ' ')
			}
			e.cells[e.y][e.x] = r
			e.x++
		}
	}
	return len(p), nil
}

func (e *emulator) do(what, number string) {
	switch what {
	case "A":
		n, _ := strconv.Atoi(number)
		if e.y -= n; e.y < 0 {
			e.t.Fatal("the cursor left the screen")
		}
	case "K":
		if e.y < len(e.cells) {
			e.cells[e.y] = e.cells[e.y][:min(e.x, len(e.cells[e.y]))]
		}
	case "J":
		e.do("K", "")
		e.cells = e.cells[:min(e.y+1, len(e.cells))]
	case "?h", "?l":
		if number == "25" {
			e.hidden = what == "?l"
		}
	case "m":
	default:
		e.t.Fatalf("an unknown escape sequence: %s%s", number, what)
	}
}

func (e *emulator) String() string {
	lines := make([]string, len(e.cells))
	for i, c := range e.cells {
		lines[i] = strings.TrimRight(string(c), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func utf8Locale(string) string { return "C.UTF-8" }

// newTestScreen returns a screen of 80 columns, with a killed leader whose
// lease has half of its time left.
func newTestScreen(t *testing.T, env func(string) string) (*screen, *emulator, scene) {
	e := &emulator{t: t}
	s := &screen{
		out: e, width: func() int { return 80 }, restore: func() {},
		paint: painter{color: true}, glyphs: glyphsFor(env),
	}
	st := &stage{lease: 3 * time.Second}
	for _, r := range goodReports()[:6] {
		st.apply(r)
	}
	fmt.Fprint(e, hideCursor)
	return s, e, scene{stage: st, now: at(3.3), next: "one of the others takes over"}
}

func TestPanel(t *testing.T) {
	s, e, c := newTestScreen(t, utf8Locale)
	s.say(2100*time.Millisecond, "replica-1 (pid 101) is killed by SIGKILL.")
	s.draw(c)
	want := `  2.1 s  replica-1 (pid 101) is killed by SIGKILL.
───────────────────────────────────────────────────────────────────────────────
  leader   nobody, while the lease of replica-1 has 1.5 s left

  replica-1  pid 101     killed     token 1  lease ██████████▌░░░░░░░░░░ 1.5 s
  replica-2  pid 102     starts
  replica-3  pid 103     starts

  next     one of the others takes over`
	if got := e.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPanelASCII(t *testing.T) {
	s, e, c := newTestScreen(t, func(string) string { return "C" })
	s.draw(c)
	if got := e.String(); !strings.Contains(got, "lease ##########........... 1.5 s") || strings.ContainsFunc(got, func(r rune) bool { return r > 126 }) {
		t.Errorf("got:\n%s", got)
	}
}

// After the end there is what was said, and nothing else.
func TestScreenLeavesNothing(t *testing.T) {
	s, e, c := newTestScreen(t, utf8Locale)
	var want []string
	for i := range 30 {
		c.now = c.now.Add(frame)
		s.draw(c)
		if i%7 == 0 {
			s.say(time.Duration(i)*time.Second, "something happened")
			want = append(want, fmt.Sprintf("%5d.0 s  something happened", i)[2:])
		}
	}
	if !e.hidden {
		t.Error("the cursor is not hidden while the panel is shown")
	}
	s.close()
	s.draw(c)
	s.tell([]string{"", "TOKEN"})
	s.close()
	if got, want := e.String(), strings.Join(want, "\n")+"\n\nTOKEN"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if e.hidden {
		t.Error("the cursor stays hidden")
	}
}

// A frame that shows the same is not written again.
func TestScreenWritesChangesOnly(t *testing.T) {
	s, e, c := newTestScreen(t, utf8Locale)
	s.draw(c)
	e.cells = nil
	s.draw(c)
	if got := e.String(); got != "" {
		t.Errorf("written again:\n%s", got)
	}
}

func TestNoColor(t *testing.T) {
	r := row{{"a", bold + red}, {"b", green}, {"c", faint}}
	if got, want := (painter{}).row(r), "\x1b[1ma\x1b[mb\x1b[2mc\x1b[m"; got != want {
		t.Errorf("without colours %q, want %q", got, want)
	}
	if got, want := (painter{color: true}).row(r), "\x1b[1;31ma\x1b[m\x1b[32mb\x1b[m\x1b[2mc\x1b[m"; got != want {
		t.Errorf("with colours %q, want %q", got, want)
	}
}

func TestBar(t *testing.T) {
	g := glyphsFor(utf8Locale)
	for _, c := range []struct {
		part        time.Duration
		full, empty string
	}{
		{0, "", "░░░░"},
		{time.Second, "█", "░░░"},
		{1500 * time.Millisecond, "█▌", "░░"},
		{4 * time.Second, "████", ""},
		{5 * time.Second, "████", ""},
	} {
		if full, empty := g.bar(c.part, 4*time.Second, 4); full != c.full || empty != c.empty {
			t.Errorf("bar(%v) = %q, %q; want %q, %q", c.part, full, empty, c.full, c.empty)
		}
	}
}
