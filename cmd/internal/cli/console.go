// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/lines"
	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// console is where a command writes to. Its methods may be called from any
// goroutine and never block, but for writes to standard output.
type console struct {
	stdout   io.Writer // see output
	screen   int       // the file descriptor of standard output, -1 if it is no terminal
	terminal bool      // standard error is a terminal
	attended bool      // somebody may sit there: standard input, output or error is a terminal
	stderr   *lines.Lines

	json, quiet, verbose bool

	log *slog.Logger // not nil with --verbose, without --json

	mu    sync.Mutex
	shown bool // a line that will be overwritten is shown
}

func newConsole(stdout, stderr *os.File) *console {
	c := &console{stdout: flags.NewOutput(stdout), screen: -1, terminal: isTerminal(stderr), stderr: lines.New(stderr)}
	c.attended = slices.ContainsFunc([]*os.File{os.Stdin, stdout, stderr},
		func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) })
	if isTerminal(stdout) {
		c.screen = int(stdout.Fd())
	}
	return c
}

// output returns err, or that standard output takes nothing, which goes before: whatever else
// a command has found was not told.
func (c *console) output(err error) error {
	if o, ok := c.stdout.(*flags.Output); ok {
		return o.Or(err)
	}
	return err
}

func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

func (c *console) set(f outputFlags) {
	c.json, c.quiet, c.verbose = f.JSON, f.Quiet, f.Verbose
	if f.Verbose && !f.JSON {
		c.log = slog.New(tint.NewTextHandler(lineWriter{c}, &tint.Options{
			Level: slog.LevelDebug, TimeFormat: "15:04:05.000", ReplaceAttr: printable.Attr,
			NoColor: !c.terminal || os.Getenv("NO_COLOR") != "",
		}))
	}
}

const prefix = "tenure: "

func (c *console) close(patience time.Duration) { c.stderr.Close(patience) }

// say tells people what goes on. It is not said with --quiet, nor with --json.
func (c *console) say(format string, args ...any) {
	if !c.quiet && !c.json {
		c.write(prefix+format, args...)
	}
}

// warn tells people what they have to know.
func (c *console) warn(format string, args ...any) {
	if c.json {
		c.emit(record{Event: eventWarning, Error: fmt.Sprintf(format, args...)})
		return
	}
	c.write(prefix+format, args...)
}

// show says something on a line of the terminal that the next message
// overwrites, and on a line of its own where there is no terminal.
func (c *console) show(format string, args ...any) {
	if c.quiet || c.json {
		return
	}
	if !c.terminal {
		c.write(prefix+format, args...)
		return
	}
	text := fit(printable.Text(prefix+fmt.Sprintf(format, args...)), c.width())
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.stderr, "\r\x1b[K%s", text)
	c.shown = true
}

// clear takes away what show has left.
func (c *console) clear() { _, _ = lineWriter{c}.Write(nil) }

func (c *console) write(format string, args ...any) {
	_, _ = lineWriter{c}.Write([]byte(printable.Text(fmt.Sprintf(format, args...)) + "\n"))
}

// lineWriter writes to standard error, over a line that show has left.
type lineWriter struct{ c *console }

func (w lineWriter) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.c.shown {
		w.c.shown = false
		p = append([]byte("\r\x1b[K"), p...)
	}
	if len(p) == 0 {
		return 0, nil
	}
	return w.c.stderr.Write(p)
}

func (c *console) width() int {
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// fitting returns the first text that fits on one line of the terminal whole,
// or the last one.
func (c *console) fitting(texts ...string) string {
	for _, text := range texts[:len(texts)-1] {
		if !c.terminal || runewidth.StringWidth(prefix+text) < c.width() {
			return text
		}
	}
	return texts[len(texts)-1]
}

// fit cuts text so that it stays on one line of the terminal, where a character
// may take two columns, or none.
func fit(text string, width int) string {
	if width > 1 && runewidth.StringWidth(text) >= width {
		return runewidth.Truncate(text, width-1, "…")
	}
	return text
}

// record is a line of --json: see help/events.txt. Durations are in seconds.
type record struct {
	Time      string   `json:"time"`
	Event     string   `json:"event"`
	Lock      string   `json:"lock,omitempty"`
	Session   string   `json:"session,omitempty"`
	Owner     string   `json:"owner,omitempty"`
	Token     uint64   `json:"token,omitempty"`
	Took      *float64 `json:"took_seconds,omitempty"`
	Remaining *float64 `json:"remaining_seconds,omitempty"`
	Held      *float64 `json:"held_seconds,omitempty"`
	Busy      *float64 `json:"busy_seconds,omitempty"`
	Share     *float64 `json:"busy_share,omitempty"`
	End       string   `json:"end,omitempty"`
	Pause     *float64 `json:"pause_seconds,omitempty"`
	Command   []string `json:"command,omitempty"`
	Status    *int     `json:"status,omitempty"`
	Processes []string `json:"processes,omitempty"`
	Cause     string   `json:"cause,omitempty"`
	Error     string   `json:"error,omitempty"`
	Missed    uint64   `json:"missed_events,omitempty"`

	Request *requestJSON `json:"request,omitempty"`
}

func (c *console) emit(r record) {
	if !c.json || c.quiet && r.Event != eventWarning && r.Event != eventError {
		return
	}
	if r.Time == "" {
		r.Time = time.Now().UTC().Format(timeFormat)
	}
	writeJSON(lineWriter{c}, r)
}

// writeJSON writes an object of --json, and a line's end.
func writeJSON(w io.Writer, object any) {
	b, err := json.Marshal(object)
	if err != nil { // a number that is infinite
		b, _ = json.Marshal(record{Event: eventError, Error: err.Error()})
	}
	_, _ = w.Write(append(printable.JSON(b), '\n'))
}

// put writes to standard output what was asked for. That it takes nothing is told at the end:
// see output.
func (c *console) put(text string) { _, _ = io.WriteString(c.stdout, text) }

func (c *console) object(v any) { writeJSON(c.stdout, v) }

// result tells people what came of a command, and programs as an object.
func (c *console) result(object any, format string, args ...any) {
	if c.json {
		c.object(object)
		return
	}
	c.say(format, args...)
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

func seconds(d time.Duration) *float64 {
	s := float64(d.Microseconds()) / 1e6
	return &s
}
