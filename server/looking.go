// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// Limits of pages.
const (
	defaultLimit = 100
	maxLimit     = 1000
	// maxUnreadable is how many records that cannot be read one page names.
	maxUnreadable = 100
)

// named returns the query of a call about one lock, to which the principal has the right.
func (c *call) named(right access.Right, known ...string) (name string, q map[string][]string, err error) {
	values, err := c.query(append([]string{"name"}, known...)...)
	if err != nil {
		return "", nil, err
	}
	name = values.Get("name")
	return name, values, c.may(right, name)
}

// status is GET /v1/status.
func (c *call) status() error {
	name, _, err := c.named(access.Read)
	if err != nil {
		return err
	}
	st, err := c.s.client.Status(c.r.Context(), name)
	if err != nil {
		return err
	}
	if st.State == "" {
		return problemf(notFound, "there is no lock %.200q: it was never held, or its record was deleted", name)
	}
	shown := statusOf(&st)
	if c.principal.May(access.Hold, name) {
		shown.Data = st.Data
	}
	return c.answer(shown)
}

// locks is GET /v1/locks.
func (c *call) locks() error {
	q, err := c.query("prefix", "limit", "after")
	if err != nil {
		return err
	}
	if err := checkLen(q, "prefix"); err != nil {
		return err
	}
	limit, err := number(q, "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return err
	}
	prefixes := c.principal.Prefixes(access.Read, q.Get("prefix"))
	if len(prefixes) == 0 {
		return c.readsNothing(q.Get("prefix"))
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), lookTimeout)
	defer cancel()
	p := page{c: c, after: q.Get("after"), limit: int(limit)}
	defer func() { c.s.limits.read(c.principal.Name(), p.read) }()
	for _, prefix := range prefixes {
		if more, err := p.fill(ctx, prefix); err != nil {
			return err
		} else if !more {
			break
		}
	}
	p.Locks = append([]wire.Status{}, p.Locks...) // [], not null
	return c.answer(p.LocksResponse)
}

// page is a page of locks that is being filled.
type page struct {
	c     *call
	after string
	limit int
	last  string // the name that was added last
	read  int    // how many records
	wire.LocksResponse
}

// fill adds the locks below a prefix, in their order. More says that there is room.
func (p *page) fill(ctx context.Context, prefix string) (more bool, err error) {
	if p.after > prefix && !strings.HasPrefix(p.after, prefix) {
		return true, nil // all of them were on pages before
	}
	for st, err := range p.c.s.client.Locks(ctx, &tenure.ListOptions{Prefix: prefix, After: p.after}) {
		p.read++
		switch {
		case err != nil && st.Name == "":
			return false, err
		case !p.c.principal.May(access.Read, st.Name):
			continue
		case len(p.Locks) == p.limit || len(p.Unreadable) == maxUnreadable:
			p.Next = p.last
			return false, nil
		case err != nil:
			p.Unreadable = append(p.Unreadable, wire.Unreadable{Name: st.Name, Detail: err.Error()})
		default:
			p.Locks = append(p.Locks, statusOf(&st))
		}
		p.last = st.Name
	}
	return true, nil
}

// history is GET /v1/history.
func (c *call) history() error {
	name, q, err := c.named(access.Read, "limit", "below")
	if err != nil {
		return err
	}
	limit, err := number(q, "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		return err
	}
	below, err := number(q, "below", 0, 1, driver.MaxToken)
	if err != nil {
		return err
	}
	all, err := c.s.client.History(c.r.Context(), name)
	if err != nil {
		return err
	}
	c.s.limits.read(c.principal.Name(), len(all))
	page := wire.HistoryResponse{Name: name, Terms: []wire.Tenure{}}
	for _, t := range all {
		switch {
		case below != 0 && t.Token >= below:
		case len(page.Terms) == int(limit):
			page.Next = page.Terms[limit-1].Token
			return c.answer(page)
		default:
			page.Terms = append(page.Terms, termOf(t))
		}
	}
	return c.answer(page)
}

// leader is GET /v1/leader.
func (c *call) leader() error {
	q, err := c.query("name", "me")
	if err == nil {
		err = checkLen(q, "me")
	}
	if err != nil {
		return err
	}
	name := q.Get("name")
	open := c.principal.Name() == "" && c.s.public(name)
	if !open {
		if err := c.may(access.Read, name); err != nil {
			return err
		}
	}
	var l tenure.Leader
	if open {
		l, err = c.s.leads.ask(name, func() error { return c.s.limits.leaderCall(addressOf(c.r)) })
	} else {
		l, err = c.s.client.Election(name, nil).Leader(c.r.Context())
	}
	var limit *problem
	me := q.Get("me")
	switch {
	case errors.As(err, &limit):
		return c.refused("limit", limit)
	case errors.Is(err, tenure.ErrNoLeader):
		return problemf(noLeader, "%.200q has no holder", name)
	case err != nil && open && !errors.Is(err, tenure.ErrInvalid):
		return problemf(unavailable, "the holder of %.200q is not known: the store cannot be read", name).after(retryStore)
	case err != nil:
		return err
	case q.Has("me") && l.Owner != me:
		return problemf(noLeader, "%.200q holds %.200q, not %.200q", l.Owner, name, me)
	}
	return c.answer(wire.Leader{Holder: l.Owner, Token: l.Token, Label: l.Label})
}

// public says whether the holder of a lock is public.
func (s *Server) public(name string) bool {
	return !strings.HasPrefix(name, driver.OwnPrefix) &&
		slices.ContainsFunc(s.o.Public, func(prefix string) bool { return strings.HasPrefix(access.Base(name), prefix) })
}

// fenceCheck is POST /v1/fence-check.
func (c *call) fenceCheck() error {
	var q wire.FenceCheckRequest
	if err := c.read(&q); err != nil {
		return err
	}
	if err := c.may(access.Read, q.Name); err != nil {
		return err
	}
	if q.Token == 0 {
		return problemf(badRequest, "token is 0: give the token that the writer sent")
	}
	st, err := c.s.client.Status(c.r.Context(), q.Name)
	if err != nil {
		return err
	}
	var why string
	switch {
	case q.Token == st.Token:
		return c.answer(wire.Empty{})
	case q.Token < st.Token:
		why = "another term has begun: refuse the write"
	default:
		why = "this token was never given, or the record was lost since: refuse the write, and check which lock the token belongs to"
	}
	p := problemf(stale, "token %d of %.200q is not the current token, %d: %s", q.Token, q.Name, st.Token, why)
	p.Token = &st.Token
	return p
}

// once is GET /v1/once.
func (c *call) once() error {
	name, _, err := c.named(access.Read)
	if err == nil {
		// The ledger is a record of its own; the right to the name covers it.
		err = c.may(access.Read, once.LockName(name))
	}
	if err != nil {
		return err
	}
	st, err := once.Show(c.r.Context(), c.s.client, name)
	if err != nil {
		return err
	}
	return c.answer(st) // the same JSON as the command's
}

// openapi is GET /openapi.json.
func (c *call) openapi() error {
	c.w.Header().Set("Content-Type", "application/json")
	return c.sendBytes(200, document)
}

// needsPrincipal says that a token is needed where the caller has none.
func (c *call) needsPrincipal(what string) error {
	if c.principal.Name() != "" {
		return nil
	}
	p := noToken()
	p.Detail = fmt.Sprintf("%s: %s", what, p.Detail)
	return c.refused("token", p)
}

// statusOf returns what a principal with the right read may see of a lock: no data.
func statusOf(st *tenure.Status) wire.Status {
	of := wire.Status{
		Name: st.Name, State: st.State, Holder: st.Owner, Host: st.Host, Label: st.Label, Token: st.Token,
		Since: wallTime(st.Since), Until: wallTime(st.Until),
		SeenAliveMs: floorMs(st.Unchanged), FreeInMs: ceilMs(st.FreeIn),
		LeaseMs: floorMs(st.Lease), HeartbeatMs: floorMs(st.Heartbeat),
		Session: st.Session, Priority: int64(st.Priority),
		ReservedFor: st.ReservedFor, ReservedForLabel: st.ReservedForLabel,
		Requests: []wire.RequestInfo{}, End: st.End, EndedBy: requestOf(st.EndedBy), DataBytes: int64(len(st.Data)),
	}
	of.InDoubt = st.State == tenure.StateHeld && Late(st.Unchanged, st.Heartbeat, st.Lease)
	if st.Request != nil {
		of.Requests = append(of.Requests, requestOf(st.Request))
	}
	if st.Previous != nil {
		of.Previous = termOf(*st.Previous)
	}
	return of
}

// Late says whether a holder is in doubt whose sign of life has stood for so long: a whole
// heartbeat is missing. A late beat is ordinary; a second missing beat is noticed before the
// lease is over. A heartbeat of 0 is the default, a fifth of the lease.
func Late(unchanged, heartbeat, lease time.Duration) bool {
	return unchanged >= 2*cmp.Or(max(heartbeat, 0), lease/5)
}

func termOf(t tenure.Term) wire.Tenure {
	return wire.Tenure{
		Token: t.Token, Holder: t.Owner, Host: t.Host, Label: t.Label,
		Since: wallTime(t.Since), Until: wallTime(t.Until), End: t.End, Request: requestOf(t.Request), Unknown: t.Unknown,
	}
}

// requestKinds are the words of the service for what the library asks.
var requestKinds = map[tenure.RequestKind]string{
	tenure.RequestStepDown: "step-down", tenure.RequestHandOver: "hand-over",
	tenure.RequestReleaseDead: "release-dead", tenure.RequestRevoke: "revoke",
}

// kindOf returns the library's kind for a request of that word; "" for an unknown word.
func kindOf(word string) tenure.RequestKind {
	for kind, of := range requestKinds {
		if of == word {
			return kind
		}
	}
	return ""
}

func requestOf(q *tenure.Request) wire.RequestInfo {
	if q == nil {
		return wire.RequestInfo{}
	}
	kind, known := requestKinds[q.Kind]
	if !known {
		kind = string(q.Kind)
	}
	return wire.RequestInfo{Kind: kind, By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: wallTime(q.At)}
}

// wallTime is a wall clock's time as it is shown: in UTC, to the millisecond.
func wallTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// healthz is GET /healthz.
func (c *call) healthz() error { return c.text("ok\n") }

// readyz is GET /readyz.
func (c *call) readyz() error {
	if c.s.waits.closed() {
		return draining()
	}
	if err := c.s.reachable(); err != nil {
		c.s.o.Logger.Warn("tenure: not ready", "error", err)
		return problemf(unavailable, "the store does not answer: see the log of this server").after(retryStore)
	}
	return c.text("ready\n")
}

const (
	// askPeriod is how long an answer of the store serves all callers with the same question.
	askPeriod = time.Second
	// readyName is a lock that no one takes: reading that it does not exist is an answer, too.
	readyName = "readyz"
)

// recent is an answer of the store for all callers within a second.
type recent[T any] struct {
	mu    sync.Mutex // held while the store is asked
	asked time.Time
	value T
	err   error
}

// over says that the store must be asked again. The caller holds the mutex.
func (r *recent[T]) over() bool { return time.Since(r.asked) >= askPeriod }

// ask asks the store. The client bounds the read; other callers wait for the same answer. The
// caller holds the mutex.
func (r *recent[T]) ask(read func(context.Context) (T, error)) {
	r.value, r.err = read(context.Background())
	r.asked = time.Now()
}

// reachable returns why the store has not answered recently, nil if it has.
func (s *Server) reachable() error {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if s.ready.over() {
		s.ready.ask(func(ctx context.Context) (tenure.Status, error) { return s.client.Status(ctx, readyName) })
	}
	return s.ready.err
}

// leaders are the answers of /v1/leader to callers without a token: load balancers that ask
// every second, and clients behind them. An answer with a leader is kept for as long as
// readiness is; a new leader is seen at once.
type leaders struct {
	client *tenure.Client

	mu sync.Mutex
	by map[string]*led
}

// led is who leads one lock.
type led = recent[tenure.Leader]

// maxLed bounds how many names have an answer.
const maxLed = 1000

// ask returns the leader of a lock as of the last second. It counts only reads of the store,
// and of those only the first read of a name, and reads of names without a leader: so calls of
// strangers never make a load balancer wait that asks for a leader.
func (l *leaders) ask(name string, count func() error) (tenure.Leader, error) {
	l.mu.Lock()
	of := l.by[name]
	if of == nil {
		l.makeRoom()
		if err := count(); err != nil { // not for long: it asks no store
			l.mu.Unlock()
			return tenure.Leader{}, err
		}
		of = &led{}
		l.by[name] = of
	}
	l.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.err != nil || of.over() {
		if of.err != nil {
			if err := count(); err != nil {
				return tenure.Leader{}, err
			}
		}
		of.ask(l.client.Election(name, nil).Leader)
	}
	return of.value, of.err
}

// makeRoom forgets names, if there are many: first those without a leader or callers. The
// caller holds the mutex.
func (l *leaders) makeRoom() {
	if len(l.by) >= maxLed {
		for name, of := range l.by {
			if of.mu.TryLock() {
				if of.err != nil || time.Since(of.asked) > time.Minute {
					delete(l.by, name)
				}
				of.mu.Unlock()
			}
		}
	}
	if len(l.by) >= maxLed || l.by == nil {
		l.by = map[string]*led{}
	}
}
