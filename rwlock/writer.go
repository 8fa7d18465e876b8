// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/slots"
)

// WriteOptions are for one acquire of a writer. Nil means the defaults.
type WriteOptions struct {
	// AcquireOptions are those of the gate's lock. Data, UnlessAlive, AdditionalWait
	// and Priority are refused.
	tenure.AcquireOptions
	// StepDown asks the readers that the writer finds to stop, as
	// [tenure.Client.StepDown] does. They learn of it with their next heartbeat, or at
	// once with WatchRequests. The writer also waits for readers that ignore it.
	// [Lock.TryAcquireWrite] asks no one.
	StepDown bool
	// Reason is sent to the readers, and is kept in the history of their slots. If empty,
	// it says that a writer waits.
	Reason string
}

// AcquireWrite acquires the lock to write, waiting until no other process reads or
// writes. ctx bounds the waiting alone: the lease goes on until it is released.
//
// If this process reads the error matches [ErrReading], at once. It matches
// [tenure.ErrSteppedDown] if the writer was asked to stop while it waited for readers.
// The others are those of [Lock.AcquireRead].
func (l *Lock) AcquireWrite(ctx context.Context, options *WriteOptions) (*Lease, error) {
	bound, stop := l.base.Bound(ctx)
	defer stop()
	lease, err := l.acquireWrite(bound, options)
	return lease, wrap("acquire to write", l.name, l.base.OrEnded(ctx, err))
}

func (l *Lock) acquireWrite(ctx context.Context, options *WriteOptions) (*Lease, error) {
	w, err := l.newWriter(options)
	if err != nil {
		return nil, err
	}
	wait := w.options.Wait
	w.options.Wait = 0
	w.take = l.base.Taker(&w.options.AcquireOptions)
	e, err := w.wait(ctx, wait)
	return l.writes(e), err
}

// wait waits for its turn in this process, and for at most that long, if it is not zero.
func (w *writer) wait(ctx context.Context, most time.Duration) (*entry, error) {
	l := w.l
	bounded, stop, over := engine.Within(ctx, most)
	defer stop()
	leave, err := l.writing.Enter(bounded)
	if err != nil {
		return nil, over(err)
	}
	defer leave()
	defer w.end(ctx)
	p := slots.Patient(l.client.Options().LeaseDuration, w.options.AcquireOptions)
	e, err := retry(bounded, l, p, func() (*entry, error) { return w.attempt(bounded, p) }, func(*BusyError) error {
		w.waited = true
		return w.stand(bounded, p)
	})
	return e, over(err)
}

// TryAcquireWrite acquires the lock to write if no process holds it. It does not queue: it can
// come before waiters, and before readers whose turn it is. If a process reads or writes, the
// error is a [*BusyError], which matches [ErrBusy] and [tenure.ErrHeld]; if this process reads,
// the error matches [ErrReading]. If the store gave no answer but errors for StoreTimeout, which
// is three request timeouts if it is zero, the error is the store's.
func (l *Lock) TryAcquireWrite(ctx context.Context, options *WriteOptions) (*Lease, error) {
	bound, stop := l.base.Bound(ctx)
	defer stop()
	var e *entry
	w, err := l.newWriter(options)
	if err == nil {
		w.try, w.take = true, l.base.Taker(&w.options.AcquireOptions)
		e, err = once(bound, l, w.options.AcquireOptions, func() (*entry, error) { return w.claim(bound) })
	}
	return l.writes(e), wrap("try acquire to write", l.name, l.base.OrEnded(ctx, err))
}

// writer is one acquire of a writer, when it is its turn in this process.
type writer struct {
	l       *Lock
	options WriteOptions
	take    slots.Taker
	met     func(*tenure.HeldError) // is called for what is in the way; nil: not called
	try     bool                    // it does not wait
	leaves  bool                    // it leaves the waiting for readers to its holder
	place   *slots.Place            // in the line of all processes; nil before it has one
	alone   bool                    // it can have none
	waited  bool                    // after its first attempt
	gave    bool                    // it has let the gate stand open for the readers
	before  *tenure.Status          // of the gate, at the last glance
	chance  bool                    // it has seen that those before it are stuck
}

func (l *Lock) newWriter(options *WriteOptions) (*writer, error) {
	w := &writer{l: l}
	if options != nil {
		w.options = *options
	}
	var err error
	if w.options.AcquireOptions, err = acquired(&w.options.AcquireOptions); err != nil {
		return nil, err
	}
	if w.options.Reason == "" {
		w.options.Reason = "a writer waits"
	}
	if l.reads() {
		return nil, ErrReading
	}
	return w, nil
}

// end leaves the line.
func (w *writer) end(ctx context.Context) {
	if w.place != nil {
		w.l.noteLine()
		w.place.Leave(ctx)
	}
}

// entry is a gate that was taken, with the readers that are still to be waited for.
type entry struct {
	gate    slots.Lock
	last    note
	readers []noted
	slots   int // of readers
}

// writes returns the lease of a gate that this process has taken, nil for none.
func (l *Lock) writes(e *entry) *Lease {
	if e == nil {
		return nil
	}
	gate := e.gate.(*tenure.Lease) //nolint:forcetypeassert // of [slots.Base.Taker]
	return newLease(l, &grip{inner: gate, token: writerToken(gate.Token()), epoch: gate.Token(), last: e.last.Last})
}

// attempt is one attempt to write. A writer that finds line and gate free does not wait;
// another one waits until it is at the front of the line.
func (w *writer) attempt(ctx context.Context, p *slots.Patience) (*entry, error) {
	if w.place != nil || w.alone {
		if err := w.awaitTurn(ctx, p); err != nil {
			return nil, err
		}
		p.Answered()
		return w.claim(ctx)
	}
	if pause := w.l.turn.left(w.l.client.Options().RefreshPeriod); pause > 0 {
		slots.Pause(ctx, pause)
	}
	if w.lineBusy(ctx) {
		return nil, errLine
	}
	return w.claim(ctx)
}

// errLine is the error of a writer that has found others waiting.
var errLine = &BusyError{Writer: &Holder{}}

// stand takes a place in the line, if the writer has none. The line is a lock, which any
// of its waiters may get. So a process that has written recently stands back until the
// line is empty, or another process has come twice. Then each writer waits for at most
// two turns of each of the others. If those are stuck, the gate shows it.
func (w *writer) stand(ctx context.Context, p *slots.Patience) error {
	l := w.l
	if w.place != nil || w.alone {
		return nil
	}
	refresh := l.client.Options().RefreshPeriod
	begun, free, came := time.Now(), 0, map[string]uint64{}
	back := l.turn.wroteWithin(lineMemory * refresh)
	glanced := begun
	for back && !w.chance && free < 2 && time.Since(begun) < mostStandBack*refresh {
		slots.Pause(ctx, refresh/2)
		front, err := w.front(ctx)
		switch {
		case ctx.Err() != nil:
			return engine.Done(ctx)
		case err != nil, !front.Held:
			free++ // once may be between two of them
		default:
			free = 0
			if turn, ok := came[front.Owner]; ok && turn != front.Token {
				back = false
			}
			came[front.Owner] = front.Token
		}
		if time.Since(glanced) >= chanceEach*refresh {
			glanced = time.Now()
			if w.chance, err = w.unwanted(ctx, p); err != nil {
				return err
			}
		}
	}
	l.noteLine()
	w.place = l.line.Stand(ctx)
	return nil
}

// mostStandBack is for how many refresh periods a writer lets all others go first.
const mostStandBack = 60

// awaitTurn waits until the writer is at the front of the line, and the gate open, and
// then lets the gate stand open for two refresh periods: it is the readers' turn. Each
// of them looks once a refresh period.
//
// No writer depends on the line alone: it also polls the gate itself at times. If no
// process has held the gate between two polls, for longer than the readers' turn, the
// writers before this one are stuck.
func (w *writer) awaitTurn(ctx context.Context, p *slots.Patience) error {
	refresh := w.l.client.Options().RefreshPeriod
	if w.chance {
		w.chance = false
		return nil
	}
	w.before = nil
	for !w.alone && !w.place.AtFront() {
		select {
		case <-w.place.Arrived():
		case <-w.place.Ended():
			w.alone, w.place = true, nil // the line's record cannot be read, say: nothing rests on it
		case <-ctx.Done():
			return engine.Done(ctx)
		case <-time.After(slots.About(chanceEach * refresh)):
			if free, err := w.unwanted(ctx, p); err != nil || free {
				return err
			}
		}
	}
	if w.gave {
		slots.Pause(ctx, refresh/4) // a gate that is reserved seems open
	}
	if err := w.l.waitOpen(ctx, p); err != nil {
		return err
	}
	if !w.gave {
		w.gave = true
		slots.Pause(ctx, 2*refresh)
	}
	return nil
}

// chanceEach is how many refresh periods a writer that is not at the front of the line waits
// between two looks at the gate.
const chanceEach = 5

// unwanted says that no process has held the gate from the last glance to this one.
func (w *writer) unwanted(ctx context.Context, p *slots.Patience) (bool, error) {
	gate, err := w.glance(ctx, p)
	if err != nil {
		return false, err
	}
	before := w.before
	w.before = &gate
	return before != nil && before.Token == gate.Token && !inTheWay(*before) && !inTheWay(gate), nil
}

// glance looks at the gate by a read that may be behind. A store that gives no answer is
// asked for as long as the patience lasts, which begins here: nothing was asked before.
func (w *writer) glance(ctx context.Context, p *slots.Patience) (st tenure.Status, err error) {
	p.Answered()
	err = w.l.base.Patiently(ctx, p, func() error {
		list, errs := w.l.client.Statuses(ctx, []string{GateName(w.l.name)}, &tenure.ReadOptions{Eventual: true})
		st = list[0]
		return errs[0]
	})
	return st, err
}

// lineBusy says that another process is in the line. It looks only where there was a line
// a while ago: a writer that finds one while it holds the gate gives it back. Where the
// line cannot be read, nothing rests on it.
func (w *writer) lineBusy(ctx context.Context) bool {
	l := w.l
	if l.lineAge() > lineMemory*l.client.Options().RefreshPeriod {
		return false
	}
	front, err := w.front(ctx)
	return err == nil && front.Held
}

// front returns the owner at the front of the line.
func (w *writer) front(ctx context.Context) (tenure.Status, error) {
	list, errs := w.l.client.Statuses(ctx, []string{LineName(w.l.name)}, &tenure.ReadOptions{Eventual: true})
	if errs[0] == nil && list[0].Held {
		w.l.noteLine()
	}
	return list[0], errs[0]
}

// lineMemory is for how many refresh periods a process that has seen a line looks at it
// before it tries the gate.
const lineMemory = 10

func (l *Lock) noteLine() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lined = time.Now()
}

func (l *Lock) lineAge() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lined)
}

// claim takes the gate, and then looks at the slots.
func (w *writer) claim(ctx context.Context) (*entry, error) {
	l := w.l
	n, err := l.number(ctx)
	if err != nil {
		return nil, err
	}
	gate, err := w.take(ctx, GateName(l.name))
	var held *tenure.HeldError
	switch {
	case errors.As(err, &held):
		w.meets(held)
		return nil, busyWriter(held.Owner, held.FreeIn)
	case err != nil:
		return nil, err
	}
	e, err := w.enter(ctx, gate, n)
	if err != nil {
		l.giveGateBack(ctx, gate)
	}
	return e, err
}

// meets tells the caller what is in the way.
func (w *writer) meets(e *tenure.HeldError) {
	if w.met != nil {
		w.met(e)
	}
}

// meetsReaders is meets for one of the readers.
func (w *writer) meetsReaders(readers []noted) {
	if len(readers) > 0 {
		w.meets(&tenure.HeldError{Owner: readers[0].owner, Token: readers[0].token, FreeIn: readers[0].freeIn})
	}
}

// enter waits until all readers are gone that read when the gate was taken. It leaves that to a
// holder that can keep the gate alive meanwhile, which this process cannot.
func (w *writer) enter(ctx context.Context, gate slots.Lock, n int) (*entry, error) {
	l := w.l
	if err := checkEpoch(gate.Token()); err != nil {
		return nil, err
	}
	bound, stop := gate.Bind(ctx)
	defer stop()
	var s *view
	err := l.base.Patiently(bound, slots.Patient(-1, tenure.AcquireOptions{}), func() (err error) {
		s, err = w.look(bound, n)
		return err
	})
	switch {
	case err != nil:
	case s.lined && w.place == nil && !w.alone && !w.try:
		return nil, errLine
	case w.try && len(s.readers) > 0:
		w.meetsReaders(s.readers)
		return nil, busyReaders(s.readers)
	case w.leaves:
	default:
		err = w.drain(bound, s.readers)
	}
	if err == nil {
		err = gate.Check()
	}
	if err != nil {
		if lost := gate.Check(); lost != nil && ctx.Err() == nil {
			return nil, lost
		}
		return nil, err
	}
	l.turn.saw(s.tokens)
	e := &entry{gate: gate, last: lastBefore(gate), slots: s.slots}
	if w.leaves {
		e.readers = s.readers
	}
	return e, nil
}

// view is what one read of the slots has shown.
type view struct {
	readers []noted // those that may be at work
	tokens  uint64  // of all slots, added up: how often there was a reader
	slots   int     // how many there are
	lined   bool    // another process is in the line
}

// noted is a reader that a writer waits for.
type noted struct {
	slot   int
	owner  string
	token  uint64
	freeIn time.Duration
}

// look reads the number of slots, and all of them: strongly, and, when it is to count,
// after the gate was granted. Then each reader that this look does not show looks at the
// gate later, and turns back. N is the number that was known before: usually it is the
// number still, and one batch is enough.
func (w *writer) look(ctx context.Context, n int) (*view, error) {
	l := w.l
	at := time.Now()
	names := append([]string{SizeName(l.name), LineName(l.name)}, l.slotNames(0, n)...)
	list, errs := l.client.Statuses(ctx, names, nil)
	if errs[0] != nil {
		return nil, errs[0]
	}
	z, ok, err := l.size.Saw(list[0], at)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errNoSize
	}
	s := &view{slots: z.Slots, lined: errs[1] == nil && list[1].Held}
	list, errs = list[2:], errs[2:]
	if z.Slots > n {
		more, moreErrs := l.client.Statuses(ctx, l.slotNames(n, z.Slots), nil)
		list, errs = append(list, more...), append(errs, moreErrs...)
	}
	for k, st := range list {
		if errs[k] != nil {
			return nil, errs[k]
		}
		s.tokens += st.Token
		if slots.Expired(st) {
			if st, err = l.client.Status(ctx, SlotName(l.name, k)); err == nil && slots.Expired(st) {
				st, err = l.base.EndDead(ctx, st)
			}
			if err != nil {
				return nil, err
			}
		}
		if inTheWay(st) {
			s.readers = append(s.readers, noted{k, st.Owner, st.Token, st.FreeIn})
		}
	}
	return s, nil
}

func busyReaders(readers []noted) *BusyError {
	busy := &BusyError{}
	for _, r := range readers {
		busy.Readers = append(busy.Readers, Holder{r.owner, r.freeIn})
		busy.FreeIn = max(busy.FreeIn, r.freeIn)
	}
	return busy
}

// drain waits until each of those readers has left, or has shown no life for its lease. A
// later holder of its slot was granted it after the gate was shut, and turns back: so
// drain waits for the term, not for the slot.
func (w *writer) drain(ctx context.Context, readers []noted) error {
	if len(readers) == 0 {
		return nil
	}
	asking, stop := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer stop()
	if w.options.StepDown {
		for _, r := range readers {
			asked.Go(func() {
				// The slot shows the result; a reader that cannot be asked is waited for.
				_ = w.l.client.StepDown(asking, SlotName(w.l.name, r.slot), &tenure.StepDownOptions{Reason: w.options.Reason})
			})
		}
	}
	refresh := w.l.client.Options().RefreshPeriod
	for {
		w.meetsReaders(readers)
		next := refresh
		for _, r := range readers {
			next = min(next, max(r.freeIn, refresh/10)) // the dead are not waited for longer than that
		}
		slots.Pause(ctx, next)
		if ctx.Err() != nil {
			return engine.DoneWaiting(ctx, busyReaders(readers))
		}
		left, err := w.stay(ctx, readers)
		switch {
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrClosed):
			return err
		case err == nil:
			readers = left
		}
		if len(readers) == 0 {
			return nil
		}
	}
}

// stay returns those of the readers that may still be at work. A cheap read is enough to see
// that a term has ended in order: once it has, it has. That its lease is over needs a
// strong one, and a write: see [slots.Expired] and [slots.Base.EndDead].
func (w *writer) stay(ctx context.Context, readers []noted) ([]noted, error) {
	names := make([]string, len(readers))
	for i, r := range readers {
		names[i] = SlotName(w.l.name, r.slot)
	}
	list, errs := w.l.client.Statuses(ctx, names, &tenure.ReadOptions{Eventual: true})
	var left []noted
	for i, r := range readers {
		st, err := list[i], errs[i]
		behind := st.Token < r.token // or a record that was deleted
		if err == nil && (behind || st.Token == r.token && slots.Expired(st)) {
			st, err = w.l.client.Status(ctx, names[i])
		}
		if err == nil && st.Token == r.token && slots.Expired(st) {
			st, err = w.l.base.EndDead(ctx, st)
		}
		if err != nil {
			return nil, err
		}
		if inTheWay(st) && st.Token == r.token {
			left = append(left, noted{r.slot, st.Owner, r.token, st.FreeIn})
		}
	}
	return slices.Clip(left), nil
}

// giveGateBack releases a gate without a write. The note of the last writer stays as it
// was.
func (l *Lock) giveGateBack(ctx context.Context, gate slots.Lock) {
	l.base.GiveBackWith(ctx, gate, &tenure.ReleaseOptions{Data: unwritten(gate)})
}

// unwritten returns the data with which a gate is released that was not written under.
func unwritten(gate slots.Lock) []byte {
	n := lastBefore(gate)
	n.Token = gate.Token()
	return n.bytes()
}

// turn tracks the readers' turn where no line of writers gives it to them: one process
// that writes again and again would not let others in. Readers do not say that they wait,
// but each takes a slot and turns back, which raises the slot's token.
type turn struct {
	mu     sync.Mutex
	tokens uint64    // of all slots, at the last read, and of the readers of this process since
	known  bool      // there was one
	due    bool      // another process has come since the read before it
	wrote  time.Time // when this process has opened the gate last
}

// saw records the tokens of all slots that a writer has seen.
func (t *turn) saw(tokens uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = t.known && tokens > t.tokens
	t.tokens, t.known = tokens, true
}

// read records that this process reads: it was let in.
func (t *turn) read() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens++
}

// opened records that this process has opened the gate.
func (t *turn) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote = time.Now()
}

// wroteWithin says that this process has written in that time.
func (t *turn) wroteWithin(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.wrote.IsZero() && time.Since(t.wrote) < d
}

// left returns for how long the gate must still stay open.
func (t *turn) left(refresh time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.due {
		return 0
	}
	return 2*refresh - time.Since(t.wrote)
}
