// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/notification"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/text"
)

// Options are the options of a client, for all its locks. The zero value, and nil, mean
// the defaults. Setting LeaseDuration is enough: the other durations follow from it.
type Options struct {
	// LeaseDuration is how long the holder of an unchanged record may still be at work:
	// the time after which the lock of a crashed holder is taken over. Shorter means
	// faster failover, more writes, and less tolerance for a slow store: an outage of the
	// store costs the lease if it takes longer than about half of LeaseDuration, 7.8 s of 15 s;
	// 5.6 s where MaxClockDrift is 0.09. It must be a whole number of milliseconds. If zero, it is 15 s.
	LeaseDuration time.Duration

	// HeartbeatPeriod is how often a holder renews, at least a millisecond. If zero, it is a
	// fifth of LeaseDuration.
	HeartbeatPeriod time.Duration

	// RefreshPeriod is how often a waiting contender polls the record, give or take an
	// eighth, at least a millisecond. A poll comes sooner when the lease may have expired,
	// when the lock is about to change hands, and when a hint says that it may have; a
	// store that cannot answer as often returns [driver.ErrThrottled]. It bounds how late
	// a contender finds a release if the store has no watch, and a crash: a dead holder's
	// lock is taken within LeaseDuration, 9/8 of RefreshPeriod and three calls of its last
	// heartbeat. If the store has a watch, it may be far above LeaseDuration. If zero, it
	// is 1 s, and a fifth of LeaseDuration at most.
	RefreshPeriod time.Duration

	// Grace is the part of the lease, at its end, that is reserved for stopping: the
	// context of the work is cancelled that long before another holder can begin. A lock,
	// election or session may have its own durations: see [Timing]. If zero, it is an
	// eighth of LeaseDuration.
	Grace time.Duration

	// RequestTimeout bounds one request to the store. If zero, it is a tenth of LeaseDuration,
	// and heartbeats time out after a fifteenth, but not below 500 ms (or a tenth, if that is
	// less), except in buckets. If set, it bounds heartbeats too.
	RequestTimeout time.Duration

	// StopTimeout bounds how long heartbeats go on for work that was told to stop. With
	// ManualHeartbeat, the work must send them itself. If zero, it is LeaseDuration.
	StopTimeout time.Duration

	// ProgressTimeout ties the heartbeats to the work: if [Lease.Progress] is
	// not called for that long, the lease ends with [ErrStalled]. If zero, the
	// heartbeats go on for as long as the process lives.
	ProgressTimeout time.Duration

	// ManualHeartbeat requires the work to call [Lease.Renew] before the deadline. If
	// false, the client renews in the background, as long as the process lives, or as long
	// as the work shows progress.
	ManualHeartbeat bool

	// MaxClockDrift bounds the rate error of any machine's clock, as a fraction of its
	// rate; a holder gives up that much earlier. If zero, it is 0.01 where the client counts by
	// a clock that no time service slews (CLOCK_MONOTONIC_RAW of Linux), and 0.09 elsewhere, as
	// chrony slews by up to 8.3 % by default: on other systems, in sandboxes without that clock,
	// with a Clock of your own, and in a store that other lock clients share.
	//
	// Processes may have different defaults. If you set the bound, use the same in all of them.
	// A holder's record says which bound it uses. A
	// contender with a higher bound waits longer than the lease for a holder with a lower
	// one: as long as that holder may be at work by clocks that are as wrong as the higher
	// bound allows. No contender waits for less than the lease. So no clock may be wrong
	// by more than the higher of the two bounds. [EventDrift] reports a difference.
	MaxClockDrift float64

	// TrustBootClock says that this machine's boot clock runs on during every pause from
	// outside. If false, a step forward of the wall clock that the boot clock does not
	// explain ends leases, because it may be the only sign of such a pause.
	TrustBootClock bool

	// LossyStore is set by [New], whatever it was: it says that the engine of the store may
	// lose writes that it has answered ([driver.Guarded]), as Redis does. Then a takeover, and
	// the first grants after a failover, wait for as long as the store says, sessions end with a
	// failover, and the packages that rest on several records refuse the client.
	LossyStore bool

	// Owner is the name of this process as a holder, for people. No decision depends on
	// it. If empty, it consists of host name, process id and a random part.
	Owner string

	// Host and Label are shown with the owner: where it runs, and which version of the
	// software it is. If Host is empty, it is the host name.
	Host, Label string

	// MaxInFlight bounds how many requests to the store are under way at once.
	// Further requests wait; those of the lease that ends first are sent first. If zero,
	// it is 256.
	MaxInFlight int

	// HistoryLimit is how many terms of a lock its history keeps. If zero, it is 100; if
	// negative, no history is written.
	HistoryLimit int

	// OnEvent is called with every event of this client's leases, one at a time. It may be
	// slow: the protocol does not wait for it, and drops events when it falls far behind.
	OnEvent func(Event)

	// Logger gets the same events as log records. If nil, nothing is logged.
	Logger *slog.Logger

	// Notify lets this process and others send each other hints, if the store has no
	// watch. If nil, the client sends and receives no hints. Notify does not serve the
	// locks of a lock service's clients.
	Notify Notifier

	// Clock measures elapsed time. If nil, the client uses the machine's clocks: the raw clock
	// where it can be read. Inside a synctest bubble use [MonotonicClock].
	Clock Clock
}

// Clock measures elapsed time, as durations since its own origin. All methods may be
// called concurrently, never go back, and never return a negative duration: [New]
// refuses a clock that does.
type Clock interface {
	// Holder counts all time that may have passed; a holder's deadline is
	// compared with it.
	Holder() time.Duration
	// Contender counts only time that has passed for certain.
	Contender() time.Duration
}

// MonotonicClock returns a clock that only uses the monotonic reading of package time.
// It does not count suspends, which real programs must; it is for tests inside a
// testing/synctest bubble. It may be made anywhere, once for all tests, and used in
// many bubbles: each bubble has its own time.
func MonotonicClock() Clock { return clock.Go() }

// Notifier lets the processes that use one store send each other hints. A holder notifies
// the waiters for its lock when the lock is free. A process that asks a holder for something
// notifies that holder when the request is in the record. The notified process polls, or
// sends a heartbeat, at once instead of some time later.
//
// A hint changes no right to act. Messages may be late, lost, duplicated or forged:
// they cost a bounded number of requests to the store. If none arrive, everything works
// as without notifications.
//
// The address is written into the records of all leases and sessions of the client,
// with a secret that [New] makes. Anyone who can read the store can read both. See
// docs/guides/notifications.md.
//
// Package notify has a notifier on UDP. Only one client may receive from a notifier. The
// caller closes the notifier, after [Client.Close]. No message has more than 512 bytes. All
// methods may be called concurrently.
type Notifier interface {
	// Address returns where other processes reach this one, in the form that Send expects:
	// 1 to 200 printable ASCII characters without a space. [New] calls it.
	Address() string
	// Send sends a message to an address from a record. It does not wait for the network.
	// It returns an error for an address that it does not understand, or that cannot
	// belong to the fleet, because any process that can write a record chooses its
	// address. Send must not keep the message.
	Send(address string, message []byte) error
	// Receive returns the next message, or an error, at the latest when ctx ends. After
	// another error it is called again, a little later.
	Receive(ctx context.Context) (message []byte, err error)
}

const (
	defaultMaxInFlight  = 256
	defaultHistoryLimit = 100
	maxHistoryLimit     = 10_000
)

func (o *Options) withDefaults(store driver.Store) Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Clock == nil {
		c.Clock, _ = clock.Machine(clock.Options{TrustBootClock: c.TrustBootClock})
	}
	sharer, shares := store.(driver.Sharer)
	if _, raw := c.Clock.(*clock.Raw); raw && !(shares && sharer.SharesLocks()) && c.MaxClockDrift == 0 {
		c.MaxClockDrift = protocol.RawDrift
	}
	t := c.timing().WithDefaults()
	c.LeaseDuration, c.HeartbeatPeriod, c.RefreshPeriod = t.Lease, t.Heartbeat, t.Refresh
	c.Grace, c.RequestTimeout, c.StopTimeout, c.MaxClockDrift = t.Grace, t.RequestTimeout, t.StopTimeout, t.Drift
	if c.MaxInFlight == 0 {
		c.MaxInFlight = defaultMaxInFlight
	}
	if c.HistoryLimit == 0 {
		c.HistoryLimit = defaultHistoryLimit
	}
	if c.Host == "" {
		c.Host = hostName()
	}
	if c.Owner == "" {
		c.Owner = fmt.Sprintf("%s-%d-%s", c.Host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	}
	return c
}

func (o *Options) timing() protocol.Timing {
	return protocol.Timing{
		Lease: o.LeaseDuration, Heartbeat: o.HeartbeatPeriod, Refresh: o.RefreshPeriod,
		Grace: o.Grace, RequestTimeout: o.RequestTimeout, StopTimeout: o.StopTimeout,
		Progress: o.ProgressTimeout, Manual: o.ManualHeartbeat, Drift: o.MaxClockDrift,
	}
}

func (o *Options) validate() error {
	errs := []error{o.timing().Validate()}
	if o.MaxInFlight < 1 {
		errs = append(errs, refused("max in flight %d must be positive", o.MaxInFlight))
	}
	if o.HistoryLimit > maxHistoryLimit {
		errs = append(errs, refused("history limit %d must be at most %d: each term is read separately", o.HistoryLimit, maxHistoryLimit))
	}
	errs = append(errs, checkNotifier(o.Notify), checkClock(o.Clock), checkText("owner", o.Owner),
		checkText("host", o.Host), checkText("label", o.Label))
	return errors.Join(errs...)
}

// checkClock returns an error if the clock reads less than its origin: a deadline is
// positive, and other values stand for the end of a lease.
func checkClock(c Clock) error {
	if c == nil {
		return nil
	}
	if now := min(c.Holder(), c.Contender()); now < 0 {
		return text.Invalid("clock reads %v: it must not be negative; use an origin before all readings", now)
	}
	return nil
}

// checkNotifier returns an error if no record can hold the address of the notifier.
func checkNotifier(n Notifier) error {
	if n == nil || notification.IsAddress(n.Address()) {
		return nil
	}
	return text.Invalid("notification address %.200q must have 1 to %d printable ASCII characters and no space",
		n.Address(), notification.MaxAddress)
}

// checkName returns an error if no store can take a lock of that name.
func checkName(name string) error { return text.CheckName("lock name", name, driver.MaxNameLen) }

// checkKey returns an error if name cannot be the name of a lock to read, or to send a
// request for.
func checkKey(name string) error { return text.CheckKey("lock name", name, driver.MaxNameLen) }

// checkText returns an error if s must not be written into a record as text for people.
// All such text has the same limit.
func checkText(what, s string) error { return text.Check(what, s, driver.MaxOwnerLen) }

// hostName is the name of this machine, without characters that a record must not have.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "" // an unknown host is not shown
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
}

func checkData(data []byte) error {
	if len(data) > driver.MaxDataLen {
		return text.Invalid("data has %d bytes: at most %d are allowed", len(data), driver.MaxDataLen)
	}
	return nil
}

// AcquireOptions are the options of one acquire. Nil means the defaults.
type AcquireOptions struct {
	// Data is written into the record with the grant, for others to read. If nil,
	// the data of the former holder stays.
	Data []byte

	// Wait bounds the waiting, not the work. After it, Acquire gives up with the
	// [*HeldError] of the last known holder, which matches [ErrHeld]; or with the error of
	// the store if that has recently given no answer; or with an error that matches
	// [context.DeadlineExceeded] if neither is known. If zero, only the context bounds the
	// waiting. TryAcquire ignores it.
	Wait time.Duration

	// AdditionalWait bounds the waiting by the holder's lease: Acquire gives up with
	// [ErrHeld] once it has waited for the lease duration that the record first showed,
	// plus this time. If zero, only the context bounds it. TryAcquire ignores it.
	AdditionalWait time.Duration

	// StoreTimeout is how long the store may fail to give any answer before Acquire
	// returns its error. If zero, it is the lease duration; for TryAcquire, three
	// request timeouts. Negative means for ever.
	StoreTimeout time.Duration

	// UnlessAlive gives up with [ErrHeld] as soon as the holder shows a sign of life, a
	// release included, and takes the lock over if it shows none for its lease. Use it for
	// work that must run only if no other process does it, such as a job that several
	// machines start at once. A living holder is recognised after about one of its
	// heartbeat periods. A lock that is handed over to this owner is taken all the same.
	// TryAcquire ignores it.
	UnlessAlive bool

	// Timing has the durations of this lock, if they differ from the client's. It must be
	// zero for a lock under a session, which has the session's durations.
	Timing Timing

	// History keeps the terms of the lock: see [Client.History]. It costs one more write
	// before the work begins, for which the work waits at most one request timeout.
	// Elections always have it.
	History bool

	// WatchRequests lets the holder learn of a request at once, if the store can watch,
	// instead of with its next heartbeat. It costs a watch as long as the lock is held.
	// Elections always do it. With [Options.ManualHeartbeat] it has no effect: only a
	// heartbeat reads the record.
	WatchRequests bool

	// Capacity is how many pieces of work in [Lease.Do] the holder can do at once.
	// [Lease.BusyShare] is relative to it. If zero, it is 1.
	Capacity int

	// Priority is as in [ElectionOptions].
	Priority int

	// CoolDown and CoolDownMax are as in [ElectionOptions]. TryAcquire and
	// UnlessAlive ignore them.
	CoolDown, CoolDownMax time.Duration
}

func (o *AcquireOptions) copied(lease time.Duration, label string) (AcquireOptions, error) {
	var c AcquireOptions
	if o != nil {
		c = *o
	}
	if c.CoolDown != 0 && c.CoolDownMax == 0 {
		c.CoolDownMax = 2 * lease
	}
	if c.Data != nil {
		c.Data = append([]byte{}, c.Data...)
	}
	if c.Wait < 0 {
		return c, text.Invalid("wait %v must not be negative: use 0 to wait as long as the context allows, or TryAcquire to not wait at all", c.Wait)
	}
	if c.AdditionalWait < 0 || c.AdditionalWait > protocol.MaxLease {
		return c, text.Invalid("additional wait %v must be from 0 to %v", c.AdditionalWait, protocol.MaxLease)
	}
	if c.Capacity < 0 {
		return c, text.Invalid("capacity %d must not be negative", c.Capacity)
	}
	return c, errors.Join(checkCoolDown(c.CoolDown, c.CoolDownMax, label), checkData(c.Data))
}

func checkCoolDown(first, most time.Duration, label string) error {
	switch {
	case first < 0 || most < 0 || most > protocol.MaxLease:
		return text.Invalid("cool-down %v and maximum %v must both be from 0 to %v", first, most, protocol.MaxLease)
	case first == 0 && most != 0:
		return text.Invalid("cool-down maximum %v without a cool-down: set both or neither", most)
	case first > most:
		return text.Invalid("cool-down %v exceeds its maximum %v: lower the one or raise the other", first, most)
	case first > 0 && label == "":
		return text.Invalid("cool-down %v without a label: set Options.Label to the version of the software, because failures are counted by label", first)
	}
	return nil
}

// Timing has the durations of one lock or session, if they differ from the client's. The
// fields are as in [Options]. If LeaseDuration is zero, each zero field means the client's
// value. If LeaseDuration is set, the others follow from it, as in Options, so that
// setting it is enough; but a ProgressTimeout of zero always means the client's.
//
// [Options.MaxClockDrift] and [Options.ManualHeartbeat] are always the client's.
type Timing struct {
	LeaseDuration   time.Duration
	HeartbeatPeriod time.Duration
	RefreshPeriod   time.Duration
	Grace           time.Duration
	RequestTimeout  time.Duration
	StopTimeout     time.Duration
	ProgressTimeout time.Duration
}

// of returns the timing of a lock, given its client's timing.
func (t Timing) of(client protocol.Timing) (protocol.Timing, error) {
	from := client
	if t.LeaseDuration != 0 {
		from = protocol.Timing{Lease: t.LeaseDuration, Progress: client.Progress, Manual: client.Manual, Drift: client.Drift, Waits: client.Waits}
	}
	p := protocol.Timing{
		Lease: from.Lease, Heartbeat: cmp.Or(t.HeartbeatPeriod, from.Heartbeat), Refresh: cmp.Or(t.RefreshPeriod, from.Refresh),
		Grace: cmp.Or(t.Grace, from.Grace), RequestTimeout: cmp.Or(t.RequestTimeout, from.RequestTimeout),
		StopTimeout: cmp.Or(t.StopTimeout, from.StopTimeout), Progress: cmp.Or(t.ProgressTimeout, from.Progress),
		Manual: from.Manual, Drift: from.Drift, Waits: from.Waits,
	}.WithDefaults()
	if err := p.Validate(); err != nil {
		return client, text.Invalid("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return p, nil
}
