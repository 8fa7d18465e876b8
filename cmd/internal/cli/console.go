// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
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

	"github.com/tenurelock/tenure"
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
	attended bool      // a user may be there: standard input, output or error is a terminal
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

// output returns err, but first an error of standard output, because then the results of the
// command were not written.
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

// say reports progress to people, but not with --quiet or --json.
func (c *console) say(format string, args ...any) {
	if !c.quiet && !c.json {
		c.write(prefix+format, args...)
	}
}

// warn reports what people must know.
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

// put writes a result to standard output. An error is reported at the end: see output.
func (c *console) put(text string) { _, _ = io.WriteString(c.stdout, text) }

func (c *console) object(v any) { writeJSON(c.stdout, v) }

// result prints the result of a command, as text for people or as an object for programs.
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

// Events of this command itself, in addition to those of the client and the guard's
// notices. help/events.txt lists all of them.
const (
	eventStarted    = "command_started"
	eventNotStarted = "command_not_started"
	eventEnded      = "command_ended"
	eventKept       = "kept"
	eventPausing    = "pausing"
	eventNotRun     = "not_run"
	eventWarning    = "warning"
	eventError      = "error"
)

// outage is a time in which the store does not answer, or only now and then, and what was
// reported about it.
type outage struct {
	mu  sync.Mutex // held while it changes, and that is reported
	err error      // the last one, nil once the store has answered
	at  time.Time  // when that came

	begun, seen time.Time     // the first error that was reported, and the last one
	next        time.Time     // when it is said again
	pause       time.Duration // until then, from the last time
	more        int           // errors since that
	reported    bool          // and since then not that the store answers
}

// last returns the error of a store that gives no answer, and when it came; nil if it answers.
func (o *outage) last() (time.Time, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at, o.err
}

// troubled says whether the last report, a while ago, was that the store did not answer: an
// acquire that waits for an answer would have repeated it by now, so a read may find that the
// store answers again.
func (t *command) troubled() bool {
	o := t.client.Options()
	at, err := t.away.last()
	return err != nil && time.Since(at) >= 2*(o.RequestTimeout+o.RefreshPeriod)
}

func (t *command) answers() {
	o := &t.away
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
	if o.reported {
		o.reported = false
		t.console.say("the store answers again, after %v", round(time.Since(o.begun)))
	}
}

func (t *command) fails(err error) {
	o := &t.away
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.at = err, time.Now()
	if errors.Is(err, tenure.ErrReplaced) {
		return // it is not tried again: the command ends with it
	}
	now, quiet := o.at, o.at.Sub(o.seen)
	o.seen = now
	switch {
	case o.begun.IsZero(), !o.reported && quiet >= asOne:
		o.begun, o.pause = now, firstPause
		t.console.say("the store does not answer: %s; trying again", flags.OneLine(err))
	case now.Before(o.next):
		o.more++
		return
	default:
		o.pause = min(2*o.pause, lastPause)
		t.console.say("the store has not answered for %v, to %d more requests: %s; trying again",
			round(now.Sub(o.begun)), o.more+1, flags.OneLine(err))
	}
	o.reported, o.next, o.more = true, now.Add(o.pause), 0
}

const (
	firstPause = time.Minute
	lastPause  = time.Hour
	// asOne is for how long there must be no error before the next one is another outage.
	asOne = time.Minute
)

// report writes an event of the client as a line of --json, or as text for people;
// with --verbose the client itself logs it. The goroutine that extends the command's
// life calls it, so it must not block.
func (t *command) report(e tenure.Event) {
	c := t.console
	if c.json && (c.verbose || e.Kind != tenure.EventRenewed) {
		c.emit(recordOf(e))
	}
	switch e.Kind {
	case tenure.EventStoreError:
		t.fails(e.Err)
	case tenure.EventWaiting:
		t.answers()
		if e.Lock == t.target.Name() {
			t.manager.say("waiting for %q: held by %s", e.Lock, holderText(e.Owner, e.Token))
		}
	case tenure.EventAcquired, tenure.EventStoreAnswers:
		t.answers()
		if e.Kind == tenure.EventAcquired && e.Lock == t.target.Name() {
			t.manager.say("holds %q under token %d", e.Lock, e.Token)
		}
	case tenure.EventJeopardy:
		c.say("the heartbeat for %q failed: %s; %v of the lease remain", e.Lock, flags.OneLine(e.Err), round(e.Remaining))
	case tenure.EventStopping:
		var q *tenure.StepDownError
		if errors.As(e.Err, &q) {
			c.say("%s asks this holder to %s: %s; the command is asked to stop", q.By, wayText(q.To, q.ToLabel), q.Reason)
		}
	case tenure.EventDrift:
		c.say("%q: %s; use the same bound in all processes", e.Owner, flags.OneLine(e.Err))
	case tenure.EventSafe:
		c.say("heartbeats for %q succeed again", e.Lock)
	}
}

func recordOf(e tenure.Event) record {
	r := record{
		Time: e.Time.UTC().Format(timeFormat), Event: string(e.Kind),
		Lock: e.Lock, Session: e.Session, Owner: e.Owner, Token: e.Token,
	}
	switch e.Kind {
	case tenure.EventWaiting, tenure.EventJeopardy, tenure.EventSafe:
		r.Remaining = seconds(e.Remaining)
	case tenure.EventOpened, tenure.EventStoreAnswers:
		r.Took = seconds(e.Took)
	case tenure.EventAcquired, tenure.EventRenewed:
		r.Took, r.Remaining = seconds(e.Took), seconds(e.Remaining)
	case tenure.EventReleased, tenure.EventEnded, tenure.EventClosed:
		r.Held = seconds(e.Held)
		if e.Kind == tenure.EventReleased && e.End != tenure.EndReleased {
			r.End = e.End
		}
	case tenure.EventBusy:
		r.Held, r.Busy, r.Share = seconds(e.Held), seconds(e.Busy), &e.Share
	}
	r.Missed = e.Missed
	var asked *tenure.StepDownError
	switch {
	case e.Err == nil:
	case e.Kind == tenure.EventStopping || e.Kind == tenure.EventLost || e.Kind == tenure.EventReleased:
		r.Cause = flags.OneLine(e.Err) // nothing has failed, or not here
		if errors.As(e.Err, &asked) {
			kind := tenure.RequestStepDown
			if asked.To != "" || asked.ToLabel != "" {
				kind = tenure.RequestHandOver
			}
			r.Request = &requestJSON{
				Kind: string(kind), By: asked.By, Reason: asked.Reason, To: asked.To, ToLabel: asked.ToLabel,
			}
		}
	default:
		r.Error = flags.OneLine(e.Err)
	}
	return r
}

func round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func holderText(owner string, token uint64) string {
	return fmt.Sprintf("%q (token %d)", owner, token)
}
