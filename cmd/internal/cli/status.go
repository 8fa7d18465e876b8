// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

type statusCmd struct {
	Names []string `arg:"" optional:""`
	readerFlags
	Refresh  time.Duration  `default:"1s" must:"be a period"`
	Watch    bool           `short:"w"`
	ExitCode bool           `name:"exit-code"`
	MaxAge   *time.Duration `name:"max-age"`

	shown, identity string // of the store, for --json
}

// Run shows who holds what.
func (f *statusCmd) Run(c *console, rest operands) error {
	f.Names = append(f.Names, rest.words...)
	if err := check(tenure.Options{}, f.Names...); err != nil {
		return err
	}
	if err := f.checkOne(); err != nil {
		return err
	}
	v, err := f.reader(c, f.Watch)
	if err != nil {
		return err
	}
	if v == nil {
		return f.finish(c, nothing(f.Names))
	}
	defer v.close()
	if f.Watch {
		return f.watch(v.ctx, c, v.client)
	}
	rows, err := look(v.ctx, v.client, f.Names)
	if err == nil && f.MaxAge != nil {
		rows, err = age(v.ctx, v.client, rows, *f.MaxAge, f.Refresh)
	}
	if err == nil && c.json {
		f.shown = v.at.Shown()
		f.identity, err = doctor.Identity(v.ctx, v.store)
	}
	if err != nil {
		return readFailed(v.ctx, err)
	}
	for _, r := range rows {
		switch {
		case r.state == stateNever:
			c.sayLedgers(v.ctx, v.client, r.Name)
		case r.state == stateFree && slices.Contains(f.Names, r.Name):
			defer c.sayHeldUnder(v.ctx, v.client, r.Name)
		}
	}
	return f.finish(c, rows)
}

// finish prints the rows, and with --exit-code ends with the status of the only row.
func (f *statusCmd) finish(c *console, rows []row) error {
	if f.ExitCode && len(rows) != 1 {
		return usage("--exit-code needs one lock, and %q consists of %d: name one of them, such as %q",
			f.Names[0], len(rows), rows[0].Name)
	}
	if f.ExitCode && f.Quiet {
		return f.exit(rows[0])
	}
	err := f.print(c, rows)
	if f.ExitCode {
		return f.exit(rows[0])
	}
	return err
}

// checkPeriod checks the time between two requests to the store.
func checkPeriod(flag string, d time.Duration) error {
	const least = time.Millisecond // as for the periods of a lease
	switch {
	case d <= 0:
		return usage("%s %v must be positive", flag, d)
	case d < least:
		return usage("%s %v must be at least %v, because each poll is a request to the store: is the unit right?", flag, d, least)
	}
	return nil
}

// States of a lock, as people see them.
const (
	stateHeld       = "held"
	stateAsked      = "asked"      // held, and asked to make way
	stateReserved   = "reserved"   // for an owner, after a hand-over
	stateFree       = "free"       // released
	stateExpired    = "expired"    // seen without a sign of life for a lease
	stateNever      = "never held" // there is no record
	stateUnreadable = "unreadable"
)

// row is one lock.
type row struct {
	tenure.Status
	state string
	err   error // of a record that cannot be read

	semaphore string // that it is part of, "" if it is a lock
	slot      *int   // that it is, nil if it is the record of how many there are
	slots     int    // how many there are, 0 if it is not known
	readersOf string // the lock for readers and writers that it is part of, "" otherwise
	side      string // "writer" or "reader", "" if it is the record of how many slots there are
}

func rowOf(st tenure.Status) row {
	r := row{Status: st, state: stateExpired}
	switch {
	case st.Token == 0 && !st.Failover: // else a record may have been lost
		r.state = stateNever
	case st.Held && st.Request != nil:
		r.state = stateAsked
	case st.Held:
		r.state = stateHeld
	case st.State == tenure.StateReserved && st.FreeIn > 0:
		r.state = stateReserved
	case st.State == tenure.StateReleased:
		r.state = stateFree
	}
	return r
}

func nothing(names []string) []row {
	var rows []row
	for _, name := range names {
		rows = append(rows, rowOf(tenure.Status{Name: name}))
	}
	return rows
}

// look reads the named locks, or all locks.
func look(ctx context.Context, client *tenure.Client, names []string) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var rows []row
	add := func(st tenure.Status, err error) error {
		switch {
		case err == nil:
			rows = append(rows, rowOf(st))
		case errors.Is(err, tenure.ErrUnreadable):
			rows = append(rows, row{Status: st, state: stateUnreadable, err: err})
		default:
			return err
		}
		return nil
	}
	for _, name := range names {
		st, err := client.Status(ctx, name)
		st.Name = name
		if err == nil && st.Token == 0 {
			parts, err := partsOf(ctx, client, name)
			if err != nil {
				return nil, err
			}
			if len(parts) > 0 {
				rows = append(rows, parts...)
				continue
			}
		}
		if err := add(st, err); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		for st, err := range client.Locks(ctx, nil) {
			if err := add(st, err); err != nil {
				return nil, err
			}
		}
	}
	if err := closed(ctx, client, rows); err != nil {
		return nil, err
	}
	return assigned(rows), nil
}

// closed finds locks that seem to have a dead holder but are free, because their
// session was closed, which frees them without a change of their records. It reads
// each session once.
func closed(ctx context.Context, client *tenure.Client, rows []row) error {
	seen := map[string]tenure.SessionStatus{}
	for i := range rows {
		r := &rows[i]
		if r.state != stateExpired || r.Session == "" {
			continue
		}
		s, known := seen[r.Session]
		if !known {
			var err error
			if s, err = client.SessionStatus(ctx, r.Session, nil); err != nil && !errors.Is(err, tenure.ErrUnreadable) {
				return err
			}
			seen[r.Session] = s
		}
		if s.State != tenure.StateAlive {
			r.state, r.Until, r.Status.End = stateFree, s.Until, s.End
		}
	}
	return nil
}

const lookTimeout = 30 * time.Second

// readFailed returns the error to end with when a read has failed, nil if it has not.
func readFailed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if sig := (signaled{}); errors.As(context.Cause(ctx), &sig) {
		return ended(sig.ExitCode())
	}
	return storeFailed(err)
}

// permanent says that looking again is no use.
func permanent(err error) bool { return errors.Is(err, driver.ErrPermanent) }

func (f *statusCmd) print(c *console, rows []row) error {
	switch {
	case c.json:
		for _, r := range rows {
			o := r.object(time.Time{})
			o.Store, o.StoreIdentity = f.shown, f.identity
			c.object(o)
		}
	case len(rows) == 0:
		c.say("no locks yet")
	default:
		c.put(table(rows, style{width: c.screenWidth()}))
	}
	for _, r := range rows {
		if r.err != nil {
			return storeFailed(r.err)
		}
	}
	return nil
}

// object is a row of --json. Durations are in seconds.
type object struct {
	Time      string   `json:"time,omitempty"` // with --watch: when it was seen
	Lock      string   `json:"lock"`
	State     string   `json:"state"`
	Owner     string   `json:"owner,omitempty"` // the holder, or the last one
	Token     uint64   `json:"token"`
	Host      string   `json:"host,omitempty"`
	Label     string   `json:"label,omitempty"`
	Session   string   `json:"session,omitempty"` // that the lock is held under
	Since     string   `json:"since,omitempty"`
	Until     string   `json:"until,omitempty"`
	Lease     float64  `json:"lease_seconds,omitempty"`
	Heartbeat float64  `json:"heartbeat_seconds,omitempty"`
	Unchanged *float64 `json:"unchanged_seconds,omitempty"`
	FreeIn    *float64 `json:"free_in_seconds,omitempty"`

	ReservedFor string       `json:"reserved_for,omitempty"`
	ForLabel    string       `json:"reserved_for_label,omitempty"`
	Failover    bool         `json:"failover,omitempty"` // the store may have lost who holds the lock
	Request     *requestJSON `json:"request,omitempty"`  // what the holder was asked
	End         string       `json:"end,omitempty"`      // how the last term ended
	EndedBy     *requestJSON `json:"ended_by,omitempty"`
	Priority    int          `json:"priority,omitempty"`

	Semaphore string `json:"semaphore,omitempty"` // that this is part of
	Slot      *int   `json:"slot,omitempty"`
	Slots     int    `json:"slots,omitempty"` // how many it has; slots from this number on are gone

	ReadersOf string `json:"readers_writers,omitempty"` // the lock for readers and writers that this is part of
	Side      string `json:"side,omitempty"`            // writer or reader

	Error string `json:"error,omitempty"`

	Store         string `json:"store,omitempty"`          // its URL, without a password
	StoreIdentity string `json:"store_identity,omitempty"` // two stores do not have the same
}

func (r row) object(seen time.Time) object {
	o := object{
		Time: instant(seen), Lock: r.Name, State: r.state, Owner: r.Owner, Token: r.Token,
		Host: r.Host, Label: r.Label, Session: r.Session, Since: instant(r.Since), Until: instant(r.Until),
		Lease: r.Lease.Seconds(), Heartbeat: r.Heartbeat.Seconds(),
		ReservedFor: r.ReservedFor, ForLabel: r.ReservedForLabel, Failover: r.Failover, Request: requestObject(r.Request),
		End: r.End, EndedBy: requestObject(r.EndedBy), Priority: r.Priority,
		Semaphore: r.semaphore, Slot: r.slot, Slots: r.slots, ReadersOf: r.readersOf, Side: r.side,
	}
	switch r.state {
	case stateHeld, stateAsked, stateInDoubt, stateExpired:
		o.Unchanged, o.FreeIn = seconds(r.Unchanged), seconds(r.FreeIn)
	case stateReserved:
		o.FreeIn = seconds(r.FreeIn)
	}
	if r.err != nil {
		o.Error = reasonText(r.err)
	}
	return o
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeFormat)
}

// stateInDoubt is the state of a lock whose holder has shown no sign of life for longer than
// --max-age, but may be alive.
const stateInDoubt = "in doubt"

// statusCodes are the exit statuses of --exit-code, by the state.
var statusCodes = map[string]int{
	stateHeld: 0, stateAsked: 0,
	stateFree: 1, stateNever: 2, stateReserved: 3, stateInDoubt: 4, stateExpired: 5, stateUnreadable: 6,
}

func (f *statusCmd) checkOne() error {
	for _, flag := range []struct {
		name  string
		given bool
	}{{"--exit-code", f.ExitCode}, {"--max-age", f.MaxAge != nil}} {
		switch {
		case flag.given && f.Watch:
			return usage("%s is for a single answer, so it excludes --watch", flag.name)
		case flag.given && len(f.Names) != 1:
			return usage("%s is for one lock: name exactly one", flag.name)
		}
	}
	if f.MaxAge != nil && *f.MaxAge <= 0 {
		return usage("--max-age %v must be positive: it is the time to wait for a sign of life", *f.MaxAge)
	}
	return nil
}

func (f *statusCmd) exit(r row) error {
	switch code := statusCodes[r.state]; {
	case r.err != nil:
		return failed(code, errors.New(flags.OneLine(r.err)))
	case code != 0:
		return ended(code)
	}
	return nil
}

// age polls a held lock until its holder shows a sign of life, at most for most. It compares
// no clock of another machine, so it cannot know how old the heartbeat was that the first
// read found.
func age(ctx context.Context, client *tenure.Client, rows []row, most, refresh time.Duration) ([]row, error) {
	if len(rows) != 1 || rows[0].state != stateHeld && rows[0].state != stateAsked {
		return rows, nil // there is no life to be shown
	}
	pause := min(refresh, max(most/10, time.Millisecond))
	token := rows[0].Token
	for begun := time.Now(); ; { // the first read has ended before
		if err := sleep(ctx, min(pause, most-time.Since(begun))); err != nil {
			return nil, err
		}
		passed := time.Since(begun)
		next, err := look(ctx, client, []string{rows[0].Name})
		switch {
		case err != nil || len(next) != 1 || next[0].Token != token,
			next[0].state != stateHeld && next[0].state != stateAsked,
			// It is 0 in the read that finds a sign of life, otherwise at least the time that has
			// passed, by another clock.
			next[0].Unchanged < passed/2:
			return next, err
		case passed >= most:
			next[0].state = stateInDoubt
			return next, nil
		}
	}
}

// partsOf returns the rows of the locks of a semaphore, or of a lock for readers and writers,
// or no rows if neither exists under that name.
func partsOf(ctx context.Context, client *tenure.Client, name string) ([]row, error) {
	s, err := semaphore.New(client, name, 1, nil)
	if err != nil { // such a name has no semaphore
		return readersWritersOf(ctx, client, name)
	}
	size, err := client.Status(ctx, semaphore.SizeName(name))
	_, n, ok := semaphore.ParseSize(size)
	switch {
	case errors.Is(err, tenure.ErrUnreadable) || err == nil && !ok:
		return readersWritersOf(ctx, client, name)
	case err != nil:
		return nil, err
	}
	st, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for slot := range n {
		names = append(names, semaphore.LockName(name, slot))
	}
	for _, h := range st.Held {
		if h.Slot >= n { // it is gone, and still held
			names = append(names, semaphore.LockName(name, h.Slot))
		}
	}
	rows, err := rowsOf(ctx, client, names...)
	return append(rows, rowOf(size)), err
}

// rowsOf reads locks. Each of them must be readable.
func rowsOf(ctx context.Context, client *tenure.Client, names ...string) (rows []row, err error) {
	list, errs := client.Statuses(ctx, names, nil)
	for _, st := range list {
		rows = append(rows, rowOf(st))
	}
	return rows, errors.Join(errs...)
}

// assigned notes of each row which semaphore it is part of.
func assigned(rows []row) []row {
	numbers, locks := map[string]int{}, map[string]bool{}
	for _, r := range rows {
		if name, n, ok := semaphore.ParseSize(r.Status); ok {
			numbers[name] = n
		} else if name, _, ok := rwlock.ParseSize(r.Status); ok {
			locks[name] = true
		}
	}
	for i := range rows {
		r := &rows[i]
		if name, n, ok := semaphore.ParseSize(r.Status); ok {
			r.semaphore, r.slots = name, n
		} else if name, n, ok := rwlock.ParseSize(r.Status); ok {
			r.readersOf, r.slots = name, n
		} else if name, side, slot := sideOf(r.Name); locks[name] {
			r.readersOf, r.side, r.slot = name, side, slot
		} else if name, slot, ok := semaphore.ParseLockName(r.Name); ok && numbers[name] > 0 {
			r.semaphore, r.slot, r.slots = name, &slot, numbers[name]
		}
	}
	return rows
}

func (r row) stateText() string {
	switch {
	case r.readersOf != "" && r.side == "":
		return counted(r.slots, "reader slot")
	case r.semaphore == "":
		return r.state
	case r.slot == nil:
		return counted(r.slots, "slot")
	case *r.slot >= r.slots:
		return strings.TrimSuffix("gone, "+r.state, ", "+stateFree)
	}
	return r.state
}

// readersWritersOf returns the rows of a lock for readers and writers: the gate, the readers,
// and the number of slots. It returns no rows if no such lock has that name.
func readersWritersOf(ctx context.Context, client *tenure.Client, name string) ([]row, error) {
	st, err := readersWritersStatus(ctx, client, name)
	if err != nil || st.Slots == 0 {
		return nil, err
	}
	rows, err := rowsOf(ctx, client, rwlock.GateName(name), rwlock.SizeName(name))
	for _, r := range st.Readers {
		rows = slices.Insert(rows, len(rows)-1, rowOf(r.Status))
	}
	return rows, err
}

// readersWritersStatus returns what the records of the lock show. It has no slots if no such
// lock has that name.
func readersWritersStatus(ctx context.Context, client *tenure.Client, name string) (rwlock.Status, error) {
	l, err := rwlock.New(client, name, nil)
	if err != nil {
		return rwlock.Status{}, nil //nolint:nilerr // such a name has no readers
	}
	st, err := l.Status(ctx)
	if errors.Is(err, tenure.ErrUnreadable) {
		err = nil
	}
	return st, err
}

// sideOf returns the readers-writer lock and the side that a row belongs to, "" if there is
// no such lock: the gate's holder writes, or waits to, and a slot's holder reads.
func sideOf(lock string) (name, side string, slot *int) {
	if name, ok := rwlock.ParseGateName(lock); ok {
		return name, "writer", nil
	}
	if name, slot, ok := rwlock.ParseSlotName(lock); ok {
		return name, "reader", &slot
	}
	return "", "", nil
}

// watched is something to poll.
type watched[T any] struct {
	command string // that shows it
	refresh time.Duration
	look    func() (T, error)
	text    func(T, style) string // of all of it, for a terminal
	items   func(T) []item        // whose changes are written elsewhere
	gone    func(key string) item // what to write about a key that is gone; nil: nothing
}

// item is a part of what is watched.
type item struct {
	key    string
	state  string                   // it has changed when this has
	text   string                   // for people, a line
	object func(seen time.Time) any // for programs
}

// watch polls: on a terminal it redraws everything; elsewhere, and for programs, it
// writes what changes.
func watch[T any](ctx context.Context, c *console, w watched[T]) error {
	lines := &changes{gone: w.gone, outages: outages{console: c}}
	draw := func(seen T, trouble error) {
		if !lines.tell(trouble) {
			lines.draw(w.items(seen))
		}
	}
	if c.screen >= 0 && !c.json {
		s := &screen{c: c, colour: os.Getenv("NO_COLOR") == "", command: w.command, refresh: w.refresh}
		s.begin()
		defer s.end()
		defer suspendable(func() { s.mu.Lock(); s.end() }, func() { s.begin(); s.mu.Unlock() })()
		draw = func(seen T, trouble error) {
			s.draw(func(st style) string { return w.text(seen, st) }, trouble)
		}
	}
	ticker := time.NewTicker(w.refresh)
	defer ticker.Stop()
	var seen T
	for {
		now, err := w.look()
		switch {
		case ctx.Err() != nil || permanent(err):
			return readFailed(ctx, err)
		case err == nil:
			seen = now
		}
		draw(seen, err)
		if err := c.output(nil); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return readFailed(ctx, ctx.Err())
		}
	}
}

func (f *statusCmd) watch(ctx context.Context, c *console, client *tenure.Client) error {
	return watch(ctx, c, watched[[]row]{
		command: "tenure status", refresh: f.Refresh,
		look: func() ([]row, error) { return look(ctx, client, f.Names) },
		text: func(rows []row, st style) string {
			if len(rows) == 0 {
				return "no locks yet\n"
			}
			return table(rows, st)
		},
		items: func(rows []row) (all []item) {
			for _, r := range rows {
				all = append(all, r.item())
			}
			return all
		},
		gone: func(name string) item { return rowOf(tenure.Status{Name: name}).item() }, // it was deleted
	})
}

// outages reports when the store stops answering, and when it answers again.
type outages struct {
	console *console
	out     bool
}

// tell returns whether the store does not answer. A store that was replaced is not asked
// again: the command ends with that error.
func (o *outages) tell(trouble error) bool {
	switch {
	case errors.Is(trouble, tenure.ErrReplaced):
	case trouble != nil && !o.out:
		o.console.warn("the store does not answer: %s; trying again", flags.OneLine(trouble))
	case trouble == nil && o.out:
		o.console.say("the store answers again")
	}
	o.out = trouble != nil
	return o.out
}

// changes writes what changes, for pipes, logs and programs.
type changes struct {
	gone func(key string) item
	outages
	seen map[string]string // the state of each item
}

func (v *changes) draw(items []item) {
	now, before := time.Now(), v.seen
	v.seen = make(map[string]string, len(items))
	for _, one := range items {
		if _, twice := v.seen[one.key]; twice {
			continue
		}
		v.seen[one.key] = one.state
		if before[one.key] != one.state {
			v.write(one, now)
		}
	}
	for key := range before {
		if _, there := v.seen[key]; !there && v.gone != nil {
			v.write(v.gone(key), now)
		}
	}
}

func (v *changes) write(one item, now time.Time) {
	if v.console.json {
		v.console.object(one.object(now))
		return
	}
	v.console.put(now.Format(time.TimeOnly) + " " + printable.Text(one.text) + "\n")
}

func (r row) item() item {
	words := []string{r.Name + ":", r.state}
	if r.Token > 0 {
		if r.state == stateHeld || r.state == stateExpired {
			words = append(words, "by", r.Owner)
		} else {
			words = append(words, "after", r.Owner)
		}
		words = append(words, "under token "+formatToken(r.Token))
	}
	for _, part := range []struct{ what, value string }{{"on", r.Host}, {"label", r.Label}} {
		if part.value != "" {
			words = append(words, part.what, part.value)
		}
	}
	if r.err != nil {
		words = append(words, "("+reasonText(r.err)+")")
	}
	return item{
		key: r.Name, state: fmt.Sprint(r.state, r.Owner, r.Token, r.Since, r.Until, r.err),
		text: strings.Join(words, " "), object: func(seen time.Time) any { return r.object(seen) },
	}
}

// screen redraws what there is to see on a terminal of its own (the alternate screen), so
// that what was on it before is there again afterwards.
type screen struct {
	c       *console
	colour  bool
	command string
	refresh time.Duration
	mu      sync.Mutex // held while it is drawn, and while this process is stopped
}

func (s *screen) begin() { s.c.put("\x1b[?1049h\x1b[?25l") }
func (s *screen) end()   { s.c.put("\x1b[?25h\x1b[?1049l") }

func (s *screen) draw(all func(style) string, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height, err := term.GetSize(s.c.screen)
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	st := style{colour: s.colour, width: width, live: true}
	heading := fmt.Sprintf("%s  %s  every %v  Ctrl-C ends it", s.command, time.Now().Format(time.TimeOnly), s.refresh)
	out := []string{fit(heading, width), ""}
	if trouble != nil {
		out = append(out, fit(printable.Text("the store does not answer: "+flags.OneLine(trouble)), width), "")
	}
	out = append(out, strings.Split(strings.TrimSuffix(all(st), "\n"), "\n")...)
	if hidden := len(out) - (height - 1); hidden > 0 {
		out = append(slices.Clip(out[:len(out)-hidden-1]), fmt.Sprintf("… and %d more", hidden+1))
	}
	// Line by line, without clearing first: that would flicker.
	s.c.put("\x1b[H" + strings.Join(out, "\x1b[K\r\n") + "\x1b[K\x1b[J")
}
