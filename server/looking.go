// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

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
		return problemf(notFound, "there is no lock %.200q: nobody has ever taken it, or its record was deleted", name)
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
	page := wire.HistoryResponse{Name: name, Tenures: []wire.Tenure{}}
	for _, t := range all {
		switch {
		case below != 0 && t.Token >= below:
		case len(page.Tenures) == int(limit):
			page.Next = page.Tenures[limit-1].Token
			return c.answer(page)
		default:
			page.Tenures = append(page.Tenures, tenureOf(t))
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
		return problemf(noLeader, "nobody holds %.200q", name)
	case err != nil && open && !errors.Is(err, tenure.ErrInvalid):
		return problemf(unavailable, "it is not known who holds %.200q: the store cannot be read", name).after(retryStore)
	case err != nil:
		return err
	case q.Has("me") && l.Owner != me:
		return problemf(noLeader, "%.200q holds %.200q, not %.200q", l.Owner, name, me)
	}
	return c.answer(wire.Leader{Holder: l.Owner, Token: l.Token, Label: l.Label})
}

// public says whether anybody may know who holds a lock.
func (s *Server) public(name string) bool {
	if strings.HasPrefix(name, driver.OwnPrefix) {
		return false
	}
	for _, prefix := range s.o.Public {
		if strings.HasPrefix(access.Base(name), prefix) {
			return true
		}
	}
	return false
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
		return problemf(badRequest, "token is 0: give the token that the writer has sent")
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
		why = "another tenure has begun: refuse the write"
	default:
		why = "that token was never given, or the record was lost since: refuse the write, and look which lock it belongs to"
	}
	p := problemf(stale, "token %d of %.200q is not the present one, %d: %s", q.Token, q.Name, st.Token, why)
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
	if err == nil {
		err = checkOnceName(name)
	}
	if err != nil {
		return err
	}
	st, err := once.Show(c.r.Context(), c.s.client, name)
	if err != nil {
		return err
	}
	return c.answer(st) // its JSON is that of the command
}

// checkOnceName checks what package once does, so that a mistake is not taken for a failure
// of the store.
func checkOnceName(name string) error {
	if len(name) > once.MaxNameLen {
		return problemf(badRequest, "name %.20q... has %d bytes: at most %d are allowed for once",
			name, len(name), once.MaxNameLen)
	}
	for i, r := range name {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return problemf(badRequest, "name %.200q has %U at byte %d: only printable characters and the "+
				"ordinary space are allowed", name, r, i)
		}
	}
	return nil
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
