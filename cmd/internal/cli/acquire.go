// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// patience says how long to wait for a lock, and for the store.
type patience struct {
	wait    *time.Duration // nil: for ever; 0: not at all
	held    int            // the exit status of not getting the lock
	options tenure.AcquireOptions
}

// beside runs something in a goroutine until end is called; end waits for it.
func beside(parent context.Context, do func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(parent)
	var done sync.WaitGroup
	done.Go(func() { do(ctx) })
	return func() {
		cancel()
		done.Wait()
	}
}

// errWaited is the cause of a context that --wait has ended.
var errWaited = errors.New("waited long enough")

// acquire takes the lock. The error is a failure, or a signaled.
func (t *command) acquire(parent context.Context, p patience) (*tenure.Lease, error) {
	ctx, stop := t.signals.cancel(parent)
	defer stop()
	t.lock = t.target.Name()
	t.manager.say("waiting for %q", t.lock)
	if p.wait != nil && *p.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *p.wait, errWaited)
		defer cancel()
	}
	t.endless.Store(p.wait == nil && !p.options.UnlessAlive)
	silence := beside(ctx, t.announce)
	p.options.History, p.options.WatchRequests = true, true
	lease, err := t.target.take(ctx, p, &p.options)
	silence()
	if sig := stop(); sig != 0 {
		// Also when the lock came at the same moment: nothing has begun.
		if lease != nil {
			_ = lease.Release(context.WithoutCancel(ctx)) // nothing was done under it
		}
		return nil, signaled{sig}
	}
	if err != nil {
		return nil, t.refusal(ctx, p, err)
	}
	t.lock = lease.Name() // with --slots, the lock of the slot
	t.manager.say("holds %q under token %d", t.lock, lease.Token())
	return lease, nil
}

// refusal distinguishes a held lock from a store that cannot be reached.
func (t *command) refusal(ctx context.Context, p patience, err error) error {
	var held *tenure.HeldError
	var full *semaphore.FullError
	var busy *rwlock.BusyError
	var failure *flags.Failure
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.Is(context.Cause(ctx), errWaited): // what else the error carries is older than what holderNow says
		_, err := t.away.last() // before holderNow asks, which may find that the store answers reads
		who, held := t.holderNow()
		if err != nil && !held {
			return storeFailed(fmt.Errorf("no answer within %v: %w", *p.wait, err))
		}
		return t.notAcquired(p, fmt.Sprintf("not acquired within %v%s", *p.wait, who))
	case errors.As(err, &full):
		text, _ := t.outer.full(t.lock, full)
		return t.notAcquired(p, text)
	case errors.As(err, &busy):
		text, _ := t.outer.busy(t.lock, busy)
		return t.notAcquired(p, text)
	case errors.As(err, &held) && p.options.UnlessAlive && !t.outer.is(t.lock, held.Owner, held.Token):
		return t.notAcquired(p, "held by "+holderText(held.Owner, held.Token)+", which has shown a sign of life")
	case errors.As(err, &held) && held.Reserved:
		return t.notAcquired(p, held.Error())
	case errors.As(err, &held):
		return t.notAcquired(p, "held by "+t.outer.holder(t.lock, held.Owner, held.Token))
	}
	return storeFailed(err)
}

// holderNow says who now has what the command waited for, if the store answers soon, and
// whether others hold it: then the last store error is out of date. If the lock is free, that
// error may explain why it cannot be written.
func (t *command) holderNow() (who string, held bool) {
	ctx, cancel := context.WithTimeout(context.Background(), t.client.Options().RequestTimeout)
	defer cancel()
	h, _ := t.target.look(ctx) // without an answer nothing is known
	return h.who, h.held
}

// notAcquired reports an ordinary result: with --quiet only the exit status shows it.
func (t *command) notAcquired(p patience, why string) error {
	if t.console.quiet {
		return ended(p.held)
	}
	return failed(p.held, fmt.Errorf("%q: %s", t.lock, why))
}

// announceAfter is how long a lock is waited for in silence.
const announceAfter = time.Second

// announce reports who holds what the command waits for.
func (t *command) announce(ctx context.Context) {
	c := t.console
	defer c.clear()
	begun, told := time.Now(), t.announceEndless(ctx)
	if c.quiet || c.json {
		return
	}
	timer := time.NewTimer(announceAfter)
	defer timer.Stop()
	for due, news := false, false; ; news = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			due = true
			timer.Reset(t.target.again())
		case <-t.waiting:
			news = true
		}
		if !due || told > 0 && !news && !c.terminal && !t.troubled() {
			continue // there is nothing to report
		}
		// The look also brings the time that is left up to date.
		h, err := t.target.look(ctx)
		if err == nil && h.held {
			t.answers()
		}
		if err != nil || len(h.details) == 0 || h.news == told && !c.terminal {
			continue // it is asked again
		}
		told = h.news
		t.sayStore(ctx)
		text := t.target.waiting()
		if c.terminal {
			text += fmt.Sprintf(" for %v", time.Since(begun).Round(time.Second))
		}
		for i, detail := range h.details {
			h.details[i] = text + h.who + detail
		}
		c.show("%s", c.fitting(h.details...))
	}
}

// announceEndless warns, also with --quiet, of a wait for the command that started this one:
// such a wait never ends. It returns what it reported, see [holders].
func (t *command) announceEndless(ctx context.Context) (told uint64) {
	if !t.endless.Load() || !t.outer.among(t.target.Name()) {
		return 0
	}
	h, err := t.target.look(ctx)
	for err != nil && sleep(ctx, t.target.again()) == nil {
		h, err = t.target.look(ctx)
	}
	if err != nil || !h.own {
		return 0
	}
	t.console.warn("%s forever%s: that command ends only after this one; take another lock here, or none",
		t.target.waiting(), h.who)
	return h.news
}

// clockText shows an instant to people: the time of day, and the date if it is
// another one.
func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func formatToken(token uint64) string { return strconv.FormatUint(token, 10) }

// outer is the term under which this process was started, by its environment: see
// [command.environment]. It ends only after this process. The zero value means no term.
type outer struct {
	lock, owner string
	token       uint64
}

// outerOf reads the environment of a process that uses a store, by its URL.
func outerOf(store string) outer {
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	token, err2 := strconv.ParseUint(os.Getenv("TENURE_TOKEN"), 10, 64)
	if err != nil || err2 != nil || at.URL() != store {
		return outer{}
	}
	return outer{os.Getenv("TENURE_LOCK"), os.Getenv("TENURE_OWNER"), token}
}

// is says whether a lock is held by the outer tenure.
func (o outer) is(lock, owner string, token uint64) bool {
	return token > 0 && o == outer{lock, owner, token}
}

// holder names who holds a lock.
func (o outer) holder(lock, owner string, token uint64) string {
	text := holderText(owner, token)
	if o.is(lock, owner, token) {
		text += ", the command that started this one"
	}
	return text
}

// among says whether the outer tenure has a part of what many hold.
func (o outer) among(name string) bool {
	of, _, ok := semaphore.ParseLockName(o.lock)
	return o.lock == name || ok && of == name
}

// full says who has the slots of a semaphore, and whether the outer term has all of them.
func (o outer) full(name string, e *semaphore.FullError) (text string, own bool) {
	text = e.Error()
	for _, h := range e.Holders {
		if o.is(semaphore.LockName(name, h.Slot), h.Owner, h.Token) {
			return fmt.Sprintf("%s; the command that started this one has slot %d", text, h.Slot), len(e.Holders) == 1
		}
	}
	return text, false
}

// busy says who reads or writes, and whether the outer term blocks this command: a writer
// that waits for it may give up. It compares owners, because no record has the token of the
// environment.
func (o outer) busy(name string, e *rwlock.BusyError) (text string, own bool) {
	text = e.Error()
	if o.lock != name {
		return text, false
	}
	is := func(h rwlock.Holder) bool { return o.owner == h.Owner }
	own = e.Writer != nil && is(*e.Writer) || e.Writer == nil && slices.ContainsFunc(e.Readers, is)
	if own || slices.ContainsFunc(e.Readers, is) {
		text += fmt.Sprintf("; %q is the command that started this one", o.owner)
	}
	return text, own
}

// target is what a command runs under: a lock, or the part that this process has of what
// several hold at a time.
type target interface {
	// Name is that of all of it, and take acquires what this process is to have of it.
	Name() string
	take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error)
	// waiting says what the command waits for, and look who has it. Again is how often look is
	// called.
	waiting() string
	look(ctx context.Context) (holders, error)
	again() time.Duration
	// environment is what the command learns of it.
	environment(lease *tenure.Lease) []string
}

// holders are the processes that have what the command waits for.
type holders struct {
	who  string // the end of a sentence: ": held by ...", "" if no holder is known
	held bool   // others hold it, or may hold it
	own  bool   // the outer command keeps this process from it for as long as it lasts
	news uint64 // another number is news
	// details may follow who, the longest first. Without details nothing is reported.
	details []string
}

// failoverNews is the news of a failover, which is not about a token.
const failoverNews = math.MaxUint64

func (p patience) waits() bool { return p.wait == nil || *p.wait > 0 }

// heldEnvironment is what every command learns.
func heldEnvironment(name string, token uint64) []string {
	return []string{"TENURE_LOCK=" + name, "TENURE_TOKEN=" + formatToken(token)}
}

// lock is a lock that one process holds.
type lock struct {
	*command
	name string
}

func (l lock) Name() string { return l.name }

func (l lock) take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	acquire := l.client.Acquire
	if !p.waits() {
		acquire = l.client.TryAcquire
	}
	for {
		lease, err := acquire(ctx, l.name, o)
		if !errors.Is(err, tenure.ErrExpired) { // otherwise this process was stopped meanwhile
			return lease, err
		}
	}
}

func (l lock) waiting() string { return fmt.Sprintf("waiting for %q", l.name) }

func (l lock) again() time.Duration { return max(time.Second, l.client.Options().RefreshPeriod) }

func (l lock) look(ctx context.Context) (holders, error) {
	st, err := l.client.Status(ctx, l.name)
	switch {
	case err != nil:
		return holders{}, err
	case st.Failover:
		free := fmt.Sprintf("; free in %v", round(st.FreeIn))
		return holders{
			who: ": the store has failed over or restarted, and may have lost who holds it", held: true, news: failoverNews,
			details: []string{free, ""},
		}, nil
	case !st.Held && reservedFor(st).anybody():
		return holders{}, nil
	case !st.Held:
		return holders{who: ": reserved for " + reservedFor(st).text()}, nil
	case st.Owner == l.client.Options().Owner && !st.Since.Before(l.begun):
		return holders{}, nil // this process has it, and waits for the answer that says so
	}
	h := holders{
		who: ": held by " + l.outer.holder(l.name, st.Owner, st.Token), held: true,
		own: l.outer.is(l.name, st.Owner, st.Token), news: st.Token, details: waitingDetails(st),
	}
	if h.own {
		h.details = []string{""}
	}
	return h, nil
}

func (l lock) environment(lease *tenure.Lease) []string {
	return heldEnvironment(l.name, lease.Token())
}

// waitingDetails describe the holder that the command waits for, the longest text first.
func waitingDetails(st tenure.Status) []string {
	since := " since " + clockText(st.Since)
	if st.Unchanged <= 2*st.Heartbeat || st.Heartbeat <= 0 {
		free := fmt.Sprintf(", free %v after its last sign of life", round(st.Lease))
		return []string{since + free, free, since, ""}
	}
	silent := fmt.Sprintf(", no sign of life for %v", round(st.Unchanged))
	free := fmt.Sprintf(", free in %v at the latest if it is dead", round(st.FreeIn))
	return []string{since + silent + free, silent, ""}
}

// slots is a semaphore, and the slot that this process has of it.
type slots struct {
	*command
	*semaphore.Semaphore
	wanted int
	resize bool
	lease  *semaphore.Lease // nil before one is taken
}

// readersWriters is a lock for readers and writers, and the lease that this process has of it.
type readersWriters struct {
	*command
	*rwlock.Lock
	write bool
	lease *rwlock.Lease // nil before one is acquired
}

// choose has the command take a slot, or read, or write, instead of the lock.
func (r *runCmd) choose(t *command) error {
	switch {
	case r.Slots != nil:
		s, err := semaphore.New(t.client, t.lock, *r.Slots, nil)
		if err != nil {
			return usage("%w", err)
		}
		t.target = &slots{command: t, Semaphore: s, wanted: *r.Slots, resize: r.Resize}
	case r.Shared || r.Exclusive:
		l, err := rwlock.New(t.client, t.lock, nil)
		if err != nil {
			return usage("%w", err)
		}
		t.target = &readersWriters{command: t, Lock: l, write: r.Exclusive}
	default:
		t.warnOfName()
	}
	return nil
}

// take takes a slot, if the number of slots is what the command line says.
func (s *slots) take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	n, stored, err := s.Slots(ctx)
	// As for a lock, a waiter for a slot waits for the store too.
	end := time.Now().Add(s.client.Options().LeaseDuration)
	for err != nil && p.waits() && !permanent(err) && time.Now().Before(end) && ctx.Err() == nil {
		n, stored, err = s.Slots(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case n == s.wanted:
	case !s.resize:
		return nil, s.differ(n)
	default:
		if err := s.Resize(ctx, s.wanted, nil); err != nil {
			return nil, err
		}
		s.console.say("%q has %s now, and had %d", s.Name(), counted(s.wanted, "slot"), n)
	}
	acquire := s.Acquire
	if !p.waits() {
		acquire = s.TryAcquire
	}
	lease, err := acquire(ctx, o)
	if err != nil {
		return nil, err
	}
	if n := lease.Slots(); n != s.wanted && !stored && !s.resize {
		// Another process has set another number meanwhile.
		_ = lease.Release(context.WithoutCancel(ctx)) // nothing was done under it
		return nil, s.differ(n)
	}
	s.lease = lease
	return lease.Lease, nil
}

func (s *slots) differ(n int) error {
	return usage("%q has %s, and --slots says %d: write --slots %d, or change it for all with --slots %d --resize",
		s.Name(), counted(n, "slot"), s.wanted, n, s.wanted)
}

func (s *slots) waiting() string { return fmt.Sprintf("waiting for a slot of %q", s.Name()) }

// announceAgain is how often the holders of slots are reported again: each report reads
// every slot.
const announceAgain = 5 * time.Second

func (*slots) again() time.Duration          { return announceAgain }
func (*readersWriters) again() time.Duration { return announceAgain }

func (s *slots) look(ctx context.Context) (holders, error) {
	h := holders{news: 1, details: []string{""}}
	st, err := s.Status(ctx)
	if err != nil || len(st.Held) < st.Slots {
		return h, err
	}
	full := &semaphore.FullError{Slots: st.Slots}
	for _, h := range st.Held {
		full.Holders = append(full.Holders, semaphore.Holder{Slot: h.Slot, Owner: h.Owner, Token: h.Token})
	}
	text, own := s.outer.full(s.Name(), full)
	h.who, h.held, h.own = ": "+text, true, own
	return h, nil
}

// environment names the slot's own lock: tokens of two slots cannot be compared.
func (s *slots) environment(lease *tenure.Lease) []string {
	return append(heldEnvironment(lease.Name(), lease.Token()),
		"TENURE_SEMAPHORE="+s.Name(),
		"TENURE_SLOT="+strconv.Itoa(s.lease.Slot()),
		"TENURE_SLOTS="+strconv.Itoa(s.lease.Slots()))
}

// take acquires the lock, to read or to write.
func (s *readersWriters) take(ctx context.Context, p patience, o *tenure.AcquireOptions) (*tenure.Lease, error) {
	var err error
	w := &rwlock.WriteOptions{AcquireOptions: *o}
	switch {
	case s.write && p.waits():
		s.lease, err = s.AcquireWrite(ctx, w)
	case s.write:
		s.lease, err = s.TryAcquireWrite(ctx, w)
	case p.waits():
		s.lease, err = s.AcquireRead(ctx, o)
	default:
		s.lease, err = s.TryAcquireRead(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return s.lease.Lock(), nil
}

func (s *readersWriters) waiting() string {
	return fmt.Sprintf("waiting to %s %q", map[bool]string{false: "read", true: "write"}[s.write], s.Name())
}

func (s *readersWriters) look(ctx context.Context) (holders, error) {
	h := holders{news: 1, details: []string{""}}
	st, err := s.Status(ctx)
	busy := &rwlock.BusyError{}
	switch {
	case err != nil:
		return h, err
	case st.Writer != nil && (!s.write || st.Writer.Owner != s.client.Options().Owner): // else it has the gate itself
		busy.Writer = &rwlock.Holder{Owner: st.Writer.Owner}
	case !s.write || len(st.Readers) == 0:
		return h, nil
	}
	for _, r := range st.Readers {
		busy.Readers = append(busy.Readers, rwlock.Holder{Owner: r.Owner})
	}
	text, own := s.outer.busy(s.Name(), busy)
	h.who, h.held, h.own = ": "+text, true, own
	return h, nil
}

// environment names all of it, which the command's token belongs to.
func (s *readersWriters) environment(*tenure.Lease) []string {
	end := ""
	if last, ok := s.lease.LastWriter(); ok {
		end = last.End
	}
	return append(heldEnvironment(s.Name(), s.lease.Token()),
		"TENURE_EPOCH="+formatToken(s.lease.Epoch()), "TENURE_LAST_WRITER_END="+end)
}
