// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
)

// Defaults of [LocksOptions].
const (
	DefaultInterval = 5 * time.Second
	DefaultDiscover = time.Minute
	DefaultMax      = 1000
)

// minInterval is the shortest time between two polls or searches, as between two
// heartbeats.
const minInterval = time.Millisecond

// pollTimeout is how long one poll may take, if that is more than the interval.
const pollTimeout = 10 * time.Second

// LocksOptions say which locks are polled, and how often.
type LocksOptions struct {
	// Names are locks that are shown even if they were never taken.
	Names []string

	// Leaders are locks that always should have a holder: tenure_lock_expected is 1 for
	// them, which the alert for a lock without a holder asks for. They are polled as
	// Names are.
	Leaders []string

	// Prefixes show the locks that are there and whose names begin with one of them. An
	// empty prefix is all of them.
	Prefixes []string

	// Max is how many locks are shown that only Prefixes name: those whose names come
	// first. tenure_locks_omitted counts the others. If zero, it is [DefaultMax].
	Max int

	// Interval is the time between two polls, a millisecond at least. If zero, it is
	// [DefaultInterval].
	Interval time.Duration

	// Discover is the time between two searches for the names that begin with a prefix, a
	// millisecond at least. A search reads the records of all of them, and on some engines
	// those of all locks. If zero, it is [DefaultDiscover].
	Discover time.Duration

	// Holder returns the label of a lock's holder, in tenure_lock_holder. An empty one
	// leaves the series out. It must return few different strings over time. If nil, it
	// is the host.
	Holder func(tenure.Status) string
}

// Locks are the metrics of what the records of locks show. It is a [prometheus.Collector]:
// register it, and call Run. Its methods may be called concurrently.
type Locks struct {
	client *tenure.Client
	o      LocksOptions
	named  map[string]bool
	leader map[string]bool
	stale  time.Duration // after which a poll is out of date

	polls *prometheus.CounterVec
	took  prometheus.Histogram
	terms *prometheus.CounterVec
	ended *prometheus.CounterVec

	polling sync.Mutex // held by a poll
	found   []string   // by prefix, sorted
	sought  time.Time
	logs    map[string]*log

	mu      sync.Mutex // guards what follows
	at      time.Time  // of the last poll that succeeded; zero if the last one failed
	seen    []view
	bad     int // locks that cannot be read
	omitted int
}

// log is the history of one lock over the polls.
type log struct {
	token  uint64    // of the last term
	ended  uint64    // of the last term whose end is counted
	vacant time.Time // since when no holder was seen, zero if there is one

	success time.Time // of the ledger's last run that succeeded
}

// view is one lock, as the last poll saw it.
type view struct {
	tenure.Status
	vacant  time.Time
	ledger  *once.Ledger // nil: it has none
	success time.Time
}

// NewLocks returns metrics of locks, which Run keeps up to date. The client holds nothing
// for them; its [tenure.Options.RequestTimeout] bounds one request.
func NewLocks(client *tenure.Client, o *LocksOptions) (*Locks, error) {
	l := &Locks{client: client, named: map[string]bool{}, leader: map[string]bool{}, logs: map[string]*log{}}
	if o != nil {
		l.o = *o
	}
	if l.o.Interval < 0 || l.o.Discover < 0 || l.o.Max < 0 {
		return nil, fmt.Errorf("tenureprom: interval %v, discover %v and max %d must not be negative", l.o.Interval, l.o.Discover, l.o.Max)
	}
	for _, d := range []time.Duration{l.o.Interval, l.o.Discover} {
		if d > 0 && d < minInterval {
			return nil, fmt.Errorf("tenureprom: interval %v and discover %v must be at least %v, because each poll reads the store: check the unit", l.o.Interval, l.o.Discover, minInterval)
		}
	}
	if len(l.o.Names)+len(l.o.Leaders)+len(l.o.Prefixes) == 0 {
		return nil, errors.New("tenureprom: no locks to poll: set Names, Leaders or Prefixes")
	}
	if l.o.Interval == 0 {
		l.o.Interval = DefaultInterval
	}
	if l.o.Discover == 0 {
		l.o.Discover = DefaultDiscover
	}
	if l.o.Max == 0 {
		l.o.Max = DefaultMax
	}
	if l.o.Holder == nil {
		l.o.Holder = func(st tenure.Status) string { return st.Host }
	}
	for _, name := range l.o.Leaders {
		l.named[name], l.leader[name] = true, true
	}
	for _, name := range l.o.Names {
		l.named[name] = true
	}
	l.stale = 3*l.o.Interval + l.timeout()
	l.polls = counter("tenure_polls_total", "Polls of all locks, by whether the store answered.", "result")
	for _, result := range []string{"ok", "failed"} {
		l.polls.WithLabelValues(result)
	}
	l.took = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tenure_poll_seconds", Help: "How long polls of all locks took, including failed polls.", Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	})
	l.terms = counter("tenure_lock_tenures_total", "Terms that have begun since this program first saw the lock, by its tokens.", "name")
	l.ended = counter("tenure_lock_tenures_ended_total", "Terms that have ended since this program first saw the lock, by how; unseen if another term had begun and ended by the next poll.", "name", "end")
	return l, nil
}

func (l *Locks) timeout() time.Duration { return max(l.o.Interval, pollTimeout) }

// Run polls until ctx ends, and returns nil then. A store that gives no answer is asked
// again at the next poll; onPoll, if it is not nil, is called with the error of each poll,
// nil if it has succeeded. Run ends with an error that matches [tenure.ErrReplaced] or
// [tenure.ErrClosed] if the client cannot see the store any more: it needs a new client.
func (l *Locks) Run(ctx context.Context, onPoll func(error)) error {
	ticker := time.NewTicker(l.o.Interval)
	defer ticker.Stop()
	for {
		err := l.Poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if onPoll != nil {
			onPoll(err)
		}
		if errors.Is(err, tenure.ErrReplaced) || errors.Is(err, tenure.ErrClosed) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Poll reads the records once. After an error no lock has a value, until a poll succeeds.
func (l *Locks) Poll(ctx context.Context) error {
	l.polling.Lock()
	defer l.polling.Unlock()
	begun := time.Now()
	if !l.current(begun) {
		l.unknown()
	}
	bounded, cancel := context.WithTimeout(ctx, l.timeout())
	defer cancel()
	seen, bad, omitted, err := l.poll(bounded)
	if ctx.Err() != nil {
		return ctx.Err() // it was stopped: that shows nothing of the store
	}
	l.took.Observe(time.Since(begun).Seconds())
	result := "ok"
	if err != nil {
		result = "failed"
	}
	l.polls.WithLabelValues(result).Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.at, l.seen = time.Time{}, nil
		return err
	}
	l.at, l.seen, l.bad, l.omitted = time.Now(), seen, bad, omitted
	return nil
}

// unknown notes that locks without a holder may have had one meanwhile.
func (l *Locks) unknown() {
	for _, g := range l.logs {
		g.vacant = time.Time{}
	}
}

// current says that the last poll is not out of date.
func (l *Locks) current(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up(now)
}

// up is current for a caller that holds the mutex.
func (l *Locks) up(now time.Time) bool { return !l.at.IsZero() && now.Sub(l.at) < l.stale }

func (l *Locks) poll(ctx context.Context) (seen []view, bad, omitted int, err error) {
	if len(l.o.Prefixes) > 0 && (l.sought.IsZero() || time.Since(l.sought) >= l.o.Discover) {
		if err := l.discover(ctx); err != nil {
			return nil, 0, 0, err
		}
		l.sought = time.Now()
	}
	found := l.found
	if len(found) > l.o.Max {
		found, omitted = found[:l.o.Max], len(found)-l.o.Max
	}
	names := slices.Concat(slices.Sorted(maps.Keys(l.named)), found)
	list, errs := l.client.Statuses(ctx, names, nil)
	now := time.Now()
	shown := map[string]bool{}
	for i, st := range list {
		switch {
		case errors.Is(errs[i], tenure.ErrUnreadable):
			bad++
			continue
		case errs[i] != nil:
			return nil, 0, 0, errs[i]
		case st.Token == 0 && !l.named[st.Name]:
			continue // it was deleted since it was found
		}
		shown[st.Name] = true
		s := view{Status: st, vacant: l.note(st, now)}
		s.ledger, s.success = l.noteLedger(st)
		seen = append(seen, s)
	}
	for name := range l.logs {
		if !shown[name] && !l.named[name] && !slices.Contains(found, name) {
			delete(l.logs, name)
			l.terms.DeleteLabelValues(name)
			l.ended.DeletePartialMatch(prometheus.Labels{"name": name})
		}
	}
	return seen, bad, omitted, nil
}

// discover finds the names of the locks that begin with a prefix.
func (l *Locks) discover(ctx context.Context) error {
	found := map[string]bool{}
	for _, prefix := range l.o.Prefixes {
		for st, err := range l.client.Locks(ctx, &tenure.ListOptions{Prefix: prefix}) {
			if err != nil && !errors.Is(err, tenure.ErrUnreadable) {
				return err
			}
			if !l.named[st.Name] {
				found[st.Name] = true
			}
		}
	}
	l.found = slices.Sorted(maps.Keys(found))
	return nil
}

// endUnseen says that a term began and ended between two polls.
const endUnseen = "unseen"

// note counts what a status adds to what was seen before, and returns since when the lock
// has had no holder.
func (l *Locks) note(st tenure.Status, now time.Time) (vacant time.Time) {
	g, known := l.logs[st.Name]
	if !known {
		g = &log{token: st.Token, ended: endedBy(st)}
		l.logs[st.Name] = g
		l.terms.WithLabelValues(st.Name)
		if l.named[st.Name] { // those of a prefix can be many, and begin at 1
			for _, end := range recordEnds {
				l.ended.WithLabelValues(st.Name, end)
			}
		}
	}
	switch {
	case st.Token < g.token: // the record is an older one, or gone
		g.ended = endedBy(st)
	case st.End == tenure.EndRaised || st.Previous != nil && st.Previous.End == tenure.EndRaised:
		if st.Token > g.token {
			l.ended.WithLabelValues(st.Name, tenure.EndRaised).Inc()
		}
		g.ended = endedBy(st)
	default:
		l.terms.WithLabelValues(st.Name).Add(float64(st.Token - g.token))
		l.ends(st, g)
	}
	switch {
	case st.Held:
		g.vacant = time.Time{}
	case g.vacant.IsZero(), st.Token != g.token: // it had a holder meanwhile
		g.vacant = now
	}
	g.token = st.Token
	return g.vacant
}

// recordEnds are the ends that records show.
var recordEnds = []string{
	tenure.EndReleased, tenure.EndExpired, tenure.EndSteppedDown, tenure.EndHandedOver, tenure.EndStalled, tenure.EndStopTimeout,
	tenure.EndAbandoned, tenure.EndReleasedDead, tenure.EndRevoked, tenure.EndFailed, tenure.EndCrashed, tenure.EndRaised, endUnseen,
}

// ends counts the ends of the terms since the last counted one.
func (l *Locks) ends(st tenure.Status, g *log) {
	last := endedBy(st)
	if last <= g.ended {
		return
	}
	unseen := last - g.ended
	count := func(token uint64, end string) {
		if token <= g.ended || token > last || !slices.Contains(recordEnds, end) {
			return
		}
		unseen--
		l.ended.WithLabelValues(st.Name, end).Inc()
	}
	if last == st.Token {
		count(st.Token, st.End)
	}
	if p := st.Previous; p != nil && p.Token < st.Token {
		count(p.Token, p.End)
	}
	if unseen > 0 {
		l.ended.WithLabelValues(st.Name, endUnseen).Add(float64(unseen))
	}
	g.ended = last
}

// endedBy returns the token of the last term that has ended, by the record.
func endedBy(st tenure.Status) uint64 {
	if st.State == tenure.StateHeld && st.Token > 0 {
		return st.Token - 1
	}
	return st.Token
}

var (
	upDesc        = desc("tenure_store_up", "1 if the store answered the last poll of all locks, else 0: then no lock has a value.")
	lastDesc      = desc("tenure_last_poll_timestamp_seconds", "When the poll succeeded that the values of locks come from.")
	badDesc       = desc("tenure_locks_unreadable", "Locks whose records this version cannot read. They have no other values.")
	omittedDesc   = desc("tenure_locks_omitted", "Locks with a listed prefix that are not shown because there are too many.")
	expectedDesc  = desc("tenure_lock_expected", "1: the lock should always have a holder.", "name")
	lockHeldDesc  = desc("tenure_lock_held", "1 if the lock has a holder that may be alive, else 0. A crashed holder counts as alive until its lease is over.", "name")
	lockTokenDesc = desc("tenure_lock_token", "The fencing token of the holder, or of the last one; 0 if there was none. It never falls, unless the store has lost records.", "name")
	freeDesc      = desc("tenure_lock_free_in_seconds", "After how long at the latest the lock can be taken, if its holder shows no more sign of life.", "name")
	unchangedDesc = desc("tenure_lock_unchanged_seconds", "For how long no sign of life of the holder was seen.", "name")
	lockLeaseDesc = desc("tenure_lock_lease_seconds", "The lease duration of the holder, or of the last one.", "name")
	vacantDesc    = desc("tenure_lock_vacant_seconds", "For how long the lock has had no holder, as this program has seen it; 0 while it has one.", "name")
	sinceDesc     = desc("tenure_lock_since_timestamp_seconds", "When the holder took the lock, by its own wall clock.", "name")
	holderDesc    = desc("tenure_lock_holder", "1 for the present holder of the lock.", "name", "holder")
)

// Describe implements [prometheus.Collector].
func (l *Locks) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{l.polls, l.took, l.terms, l.ended} {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{
		upDesc, lastDesc, badDesc, omittedDesc, expectedDesc, lockHeldDesc, lockTokenDesc, freeDesc, unchangedDesc, lockLeaseDesc, vacantDesc, sinceDesc, holderDesc,
	} {
		to <- d
	}
	for _, d := range onceDescriptions {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. It sends no request.
func (l *Locks) Collect(to chan<- prometheus.Metric) {
	l.polls.Collect(to)
	l.took.Collect(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	up := l.up(now)
	gauge(to, upDesc, bit(up))
	for _, name := range slices.Sorted(maps.Keys(l.leader)) {
		gauge(to, expectedDesc, 1, label(name))
	}
	if !up {
		return
	}
	l.terms.Collect(to)
	l.ended.Collect(to)
	gauge(to, lastDesc, float64(l.at.UnixMilli())/1000)
	gauge(to, badDesc, float64(l.bad))
	gauge(to, omittedDesc, float64(l.omitted))
	for _, s := range l.seen {
		s.collect(to, l.o.Holder, now, now.Sub(l.at))
	}
}

func (s *view) collect(to chan<- prometheus.Metric, holder func(tenure.Status) string, now time.Time, age time.Duration) {
	name := label(s.Name)
	gauge(to, lockHeldDesc, bit(s.Held), name)
	gauge(to, lockTokenDesc, float64(s.Token), name)
	gauge(to, lockLeaseDesc, s.lease().Seconds(), name)
	vacant := time.Duration(0)
	if !s.vacant.IsZero() {
		vacant = now.Sub(s.vacant)
	}
	gauge(to, vacantDesc, vacant.Seconds(), name)
	s.collectLedger(to, name)
	if !s.Held {
		return
	}
	gauge(to, freeDesc, max(0, s.FreeIn-age).Seconds(), name)
	gauge(to, unchangedDesc, (s.Unchanged + age).Seconds(), name)
	gauge(to, sinceDesc, float64(s.Since.UnixMilli())/1000, name)
	if h := holder(s.Status); h != "" {
		gauge(to, holderDesc, 1, name, label(h))
	}
}

// lease is the lease duration that the record shows, or that of most clients where it shows
// none: it is what the time without a holder is compared with.
func (s *view) lease() time.Duration {
	if s.Lease > 0 {
		return s.Lease
	}
	return 15 * time.Second
}

// label makes a string fit for a label: what a holder writes about itself may be anything.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
