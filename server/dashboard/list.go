// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/access"
)

const (
	// maxLocks bounds how many locks a list counts: some 100 MB of memory.
	maxLocks = 100_000
	// oldList is from which age on of a list the locks of a page are read once more: then it shows at once whose
	// heartbeat is late.
	oldList = 3 * time.Second
)

// state is what people call what a lock is in.
type state string

const (
	held       state = "held"
	asked      state = "asked"      // held, and asked to make way
	inDoubt    state = "in doubt"   // held, and a heartbeat is late
	expired    state = "expired"    // seen without a sign of life for a lease
	reserved   state = "reserved"   // for an owner or a label after a hand-over, or after a revoke
	free       state = "free"       // released
	unreadable state = "unreadable" // nobody understands the record
	neverHeld  state = "never held" // there is no record
)

// states are those that a list of locks can be narrowed to, in the order in which an operator wants to see
// them.
var states = []state{held, asked, inDoubt, expired, reserved, free, unreadable}

// Class is the state as a word of the style sheet.
func (s state) Class() string { return strings.ReplaceAll(string(s), " ", "-") }

// lock is what was seen of one lock.
type lock struct {
	tenure.Status
	State state // in the place of what the record says
	Bytes int   // of its data, which are left out: there may be many locks
	Err   error // of a record that cannot be read

	// What the record of a lock has that was read alone.
	text   string      // its data, unless they are a ledger
	ledger once.Ledger // of once or every; without runs if it has none
}

// lockOf judges what the record of a lock shows, or the error of reading it.
func lockOf(name string, st tenure.Status, err error) *lock {
	if err != nil {
		return &lock{Status: tenure.Status{Name: name}, State: unreadable, Err: err}
	}
	l := &lock{Status: st, State: expired, Bytes: len(st.Data)}
	l.Data = nil
	switch {
	case st.Token == 0:
		l.State = neverHeld
	case st.Held && server.Late(st.Unchanged, st.Heartbeat, st.Lease):
		l.State = inDoubt
	case st.Held && st.Request != nil:
		l.State = asked
	case st.Held:
		l.State = held
	case st.State == tenure.StateReserved && st.FreeIn > 0:
		l.State = reserved
	case st.State == tenure.StateReleased, st.State == tenure.StateReserved:
		l.State = free
	}
	return l
}

// alive says that the holder can answer.
func (l *lock) alive() bool { return l.State == held || l.State == asked || l.State == inDoubt }

// holds says whether the record shows a holder, alive or not.
func (l *lock) holds() bool { return l.Status.State == tenure.StateHeld && l.State != free }

// Reason returns why a record cannot be read, without the name of the lock, which stands beside it.
func (l *lock) Reason() string {
	var e *tenure.Error
	if errors.As(l.Err, &e) {
		return e.Err.Error()
	}
	return l.Err.Error()
}

// Holder is who has it, had it or is to have it.
func (l *lock) Holder() string {
	if l.State == reserved {
		return cmp.Or(l.ReservedFor, l.ReservedForLabel, l.Owner)
	}
	return l.Owner
}

// Note says more of the holder.
func (l *lock) Note() string {
	switch {
	case l.State == unreadable:
		return l.Reason()
	case l.State == free:
		return "had it last"
	case l.State != reserved:
		return ""
	case l.ReservedFor != "":
		return "kept for it"
	case l.ReservedForLabel != "":
		return "kept for this label"
	}
	return "revoked, until it has stopped for certain"
}

// From is since when it is in its state.
func (l *lock) From() time.Time {
	if l.State == reserved || l.State == free {
		return l.Until
	}
	return l.Since
}

// remains is what remained of a lease when its record was read; Share is in per cent.
type remains struct {
	Text  string
	Share int
}

func remainsOf(s state, freeIn, lease time.Duration) (r remains) {
	switch s {
	case held, asked, inDoubt, reserved:
		r.Text = short(freeIn.Round(time.Second))
		if lease > 0 {
			r.Share = int(min(100, max(0, 100*freeIn/lease)))
		}
	case expired:
		r.Text = "ran out"
	}
	return r
}

// Remains is what remained of the lease.
func (l *lock) Remains() remains { return remainsOf(l.State, l.FreeIn, l.Lease) }

// list is all locks whose names begin with a prefix, in the order of their names.
type list struct {
	locks []*lock
	cut   bool // there are more than maxLocks
}

// list returns all locks, or at least those with the prefix.
func (d *Dashboard) list(ctx context.Context, prefix string) (list, reading) {
	all, r := ask(ctx, d.cache, lookPace, "list", func(ctx context.Context) (list, error) { return d.readList(ctx, "") })
	if prefix != "" && all.cut {
		return ask(ctx, d.cache, lookPace, "list "+prefix, func(ctx context.Context) (list, error) {
			return d.readList(ctx, prefix)
		})
	}
	return all, r
}

func (d *Dashboard) readList(ctx context.Context, prefix string) (all list, err error) {
	for st, err := range d.client.Locks(ctx, &tenure.ListOptions{Prefix: prefix}) {
		if len(all.locks) == maxLocks {
			all.cut = true
			break
		}
		if err != nil && !errors.Is(err, tenure.ErrUnreadable) {
			return list{}, err
		}
		all.locks = append(all.locks, lockOf(st.Name, st, err))
	}
	slices.SortFunc(all.locks, func(a, b *lock) int { return strings.Compare(a.Name, b.Name) })
	return all, d.freed(ctx, all.locks)
}

// freed finds those locks that seem to have a dead holder, and are free, since their session was closed: that
// frees them without a change of their records.
func (d *Dashboard) freed(ctx context.Context, locks []*lock) error {
	seen := map[string]tenure.SessionStatus{}
	for _, l := range locks {
		if l.State != expired || l.Session == "" {
			continue
		}
		s, known := seen[l.Session]
		if !known {
			var err error
			if s, err = d.client.SessionStatus(ctx, l.Session, nil); err != nil && !errors.Is(err, tenure.ErrUnreadable) {
				return err
			}
			seen[l.Session] = s
		}
		if s.State != tenure.StateAlive {
			l.State, l.Until, l.End = free, s.Until, s.End
		}
	}
	return nil
}

// renewed returns the locks as they are now, if what is known of them is old.
func (d *Dashboard) renewed(ctx context.Context, locks []*lock, at time.Time) ([]*lock, time.Time) {
	if len(locks) == 0 || time.Since(at) < oldList {
		return locks, at
	}
	names := make([]string, len(locks))
	for i, l := range locks {
		names[i] = l.Name
	}
	now, r := ask(ctx, d.cache, lookPace, fmt.Sprintf("rows %q", names), func(ctx context.Context) ([]*lock, error) {
		all, errs := d.client.Statuses(ctx, names, nil)
		locks := make([]*lock, len(all))
		for i, st := range all {
			if err := errs[i]; err != nil && !errors.Is(err, tenure.ErrUnreadable) && !errors.Is(err, tenure.ErrInvalid) {
				return nil, err
			}
			locks[i] = lockOf(names[i], st, errs[i])
		}
		return locks, d.freed(ctx, locks)
	})
	if !r.at.After(at) {
		return locks, at
	}
	return now, r.at
}

// visible are those of the locks that a visitor may see, and whose names begin with the prefix.
func (all list) visible(v visitor, prefix string) []*lock {
	return slices.DeleteFunc(slices.Clone(all.locks), func(l *lock) bool {
		return !strings.HasPrefix(l.Name, prefix) || !v.May(access.Read, l.Name)
	})
}

// nowView is the list of locks.
type nowView struct {
	Prefix, Only string // what the list is narrowed to
	Parts        string // not empty: those of shards are listed as well
	Chips        []chip
	Rows         []*lock
	At           time.Time
	Summary      string
	Pager        pager
	Cut, Known   bool // there are more locks than were read; something was read
	Unlisted     int  // parts of shards that are not listed
	Nothing      string
}

// now shows all locks.
func (d *Dashboard) now(ctx context.Context, who visitor, query url.Values) (*page, *problem) {
	v := &nowView{Prefix: query.Get("prefix"), Only: query.Get("state"), Parts: query.Get("parts")}
	p := &page{View: "now", Title: "Now", Model: v}
	if v.Only != "" && !slices.Contains(states, state(v.Only)) {
		return nil, refuse(http.StatusBadRequest, "No such state", "%.40q is no state of a lock: it is one of held, asked, "+
			"in doubt, expired, reserved, free, unreadable", v.Only)
	}
	all, r := d.list(ctx, v.Prefix)
	v.Known, v.Cut = r.good(), all.cut
	d.note(p, who, r)
	locks := all.visible(who, v.Prefix)
	v.count(locks)
	if v.Only != "" {
		locks = slices.DeleteFunc(locks, func(l *lock) bool { return l.State != state(v.Only) })
	}
	locks = v.withoutParts(locks)
	after := query.Get("after")
	from, found := slices.BinarySearchFunc(locks, after, func(l *lock, name string) int {
		return strings.Compare(l.Name, name)
	})
	if found {
		from++
	}
	to, pager := paged(len(locks), from, func(from int) string {
		if from == 0 {
			return v.address(v.Only, "")
		}
		return v.address(v.Only, locks[from-1].Name)
	})
	v.Pager = pager
	v.Rows, v.At = d.renewed(ctx, locks[from:to], r.at)
	v.explain(who)
	return p, nil
}

// count says how many locks are in which state.
func (v *nowView) count(locks []*lock) {
	counts := map[state]int{}
	for _, l := range locks {
		counts[l.State]++
	}
	v.Chips = []chip{{"all", "all", v.address("", ""), len(locks), v.Only == ""}}
	v.Summary = counted(len(locks), "lock")
	for _, s := range states {
		if counts[s] > 0 || v.Only == string(s) {
			v.Chips = append(v.Chips, chip{string(s), s.Class(), v.address(string(s), ""), counts[s], v.Only == string(s)})
		}
		if counts[s] > 0 && (s == inDoubt || s == expired || s == unreadable) {
			v.Summary += ", " + grouped(counts[s]) + " " + string(s)
		}
	}
}

// withoutParts leaves out the partitions and workers of shards that are as they should be, where the list is
// not narrowed: there may be thousands of them, and they have a page of their own.
func (v *nowView) withoutParts(locks []*lock) []*lock {
	if v.Parts != "" || v.Only != "" || v.Prefix != "" {
		return locks
	}
	listed := slices.DeleteFunc(slices.Clone(locks), func(l *lock) bool {
		part := strings.Contains(l.Name, text.PartInfix) || strings.Contains(l.Name, text.MemberInfix)
		return part && (l.State == held || l.State == free)
	})
	v.Unlisted = len(locks) - len(listed)
	return listed
}

// address is that of another page of the list.
func (v *nowView) address(only, after string) string {
	query := url.Values{"prefix": {v.Prefix}, "state": {only}, "parts": {v.Parts}, "after": {after}}
	maps.DeleteFunc(query, func(_ string, of []string) bool { return of[0] == "" })
	return "./" + tail(query)
}

// explain says why there is no lock to show.
func (v *nowView) explain(who visitor) {
	switch {
	case len(v.Rows) > 0 || !v.Known:
	case v.Only != "" && v.Prefix != "":
		v.Nothing = fmt.Sprintf("No lock whose name begins with “%s” is %s.", printable(v.Prefix), v.Only)
	case v.Only != "":
		v.Nothing = fmt.Sprintf("No lock is %s.", v.Only)
	case v.Prefix != "":
		v.Nothing = fmt.Sprintf("There is no lock whose name begins with “%s” and that %s may read.",
			printable(v.Prefix), who.Name())
	case !who.all(access.Read):
		v.Nothing = "There is no lock that " + who.Name() + " may read. " + who.rights()
	default:
		v.Nothing = "There are no locks yet. One appears when a program takes it for the first time."
	}
}
