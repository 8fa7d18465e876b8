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
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
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
	unreadable state = "unreadable" // the record cannot be read
	neverHeld  state = "never held" // there is no record
)

// states are the states by which a list of locks can be filtered, in the order of their importance to an
// operator.
var states = []state{held, asked, inDoubt, expired, reserved, free, unreadable}

// Class is the state as a word of the style sheet.
func (s state) Class() string { return strings.ReplaceAll(string(s), " ", "-") }

// lock is what was seen of one lock.
type lock struct {
	tenure.Status
	State state // in the place of what the record says
	Bytes int   // of its data, which are left out: there may be many locks
	Err   error // of a record that cannot be read

	// What only a read of the single record shows.
	text   string      // its data, unless they are a ledger
	ledger once.Ledger // of once or every; empty without runs
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

// Reason returns why a record cannot be read, without the name of the lock, which is shown next to it.
func (l *lock) Reason() string {
	var e *tenure.Error
	if errors.As(l.Err, &e) {
		return e.Err.Error()
	}
	return l.Err.Error()
}

// Holder is the present, last or next holder.
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
		return "reserved for it"
	case l.ReservedForLabel != "":
		return "reserved for this label"
	}
	return "revoked; free when the holder has certainly stopped"
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

// freed finds locks that seem to have a dead holder but are free, because their session was closed, which
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

// visible returns the locks that a visitor may see, and whose names begin with the prefix.
func (all list) visible(v visitor, prefix string) []*lock {
	return slices.DeleteFunc(slices.Clone(all.locks), func(l *lock) bool {
		return !strings.HasPrefix(l.Name, prefix) || !v.May(access.Read, l.Name)
	})
}

// nowView is the list of locks.
type nowView struct {
	Prefix, Only string // what the list is narrowed to
	Parts        string // not empty: the locks of shards are listed, too
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
		return nil, refuse(http.StatusBadRequest, "No such state", "%.40q is not a state of a lock: use held, asked, "+
			"in doubt, expired, reserved, free or unreadable", v.Only)
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

// count counts the locks in each state.
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

// address returns the address of another page of the list.
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
		v.Nothing = "There are no locks yet. A lock appears when a program takes it for the first time."
	}
}

const (
	// maxSessions bounds how many sessions are read.
	maxSessions = 10_000
	// shownLocks is how many of the locks under a session are named.
	shownLocks = 20
)

// sessionsView is the sessions that keep locks alive.
type sessionsView struct {
	Rows    []session
	At      time.Time
	Summary string
	More    int // that are not shown
	Closed  int
	Nothing string
}

// session is one session, and what it keeps alive.
type session struct {
	tenure.SessionStatus
	State state // in the place of what the record says
	Locks []chip
	Count int // of its locks
	More  int // locks that are not named
}

// Word is the state of a session in words: it is no lock.
func (s session) Word() string {
	if s.State == held {
		return "alive"
	}
	return string(s.State)
}

// Remains is what remained of the lease.
func (s session) Remains() remains { return remainsOf(s.State, s.FreeIn, s.Lease) }

// sessions shows the sessions.
func (d *Dashboard) sessions(ctx context.Context, who visitor, _ url.Values) (*page, *problem) {
	v := &sessionsView{}
	p := &page{View: "sessions", Title: "Sessions", Model: v}
	all, r := ask(ctx, d.cache, lookPace, "sessions", d.readSessions)
	locks, ofLocks := d.list(ctx, "")
	r.err = cmp.Or(r.err, ofLocks.err)
	v.At, r.at = r.at, earlier(r.at, ofLocks.at)
	d.note(p, who, r)
	v.fill(all, locks.visible(who, ""), who.all(access.Read))
	if len(v.Rows) == 0 && r.good() {
		v.Nothing = "There are no sessions. A process that holds many locks opens a session, so that one heartbeat " +
			"keeps all of them alive."
		if !who.all(access.Read) {
			v.Nothing = "There are no sessions with a lock that " + who.Name() + " may read."
		}
	}
	return p, nil
}

func (d *Dashboard) readSessions(ctx context.Context) ([]tenure.SessionStatus, error) {
	var all []tenure.SessionStatus
	for s, err := range d.client.Sessions(ctx) {
		switch {
		case len(all) == maxSessions:
			return all, nil
		case err == nil:
			s.Data = nil
			all = append(all, s)
		case !errors.Is(err, tenure.ErrUnreadable):
			return nil, err
		}
	}
	return all, nil
}

// fill adds the sessions of these locks, and idle sessions for a visitor who may read all locks.
func (v *sessionsView) fill(all []tenure.SessionStatus, locks []*lock, idle bool) {
	under := map[string][]*lock{}
	for _, l := range locks {
		if l.Session != "" && l.Status.State == tenure.StateHeld {
			under[l.Session] = append(under[l.Session], l)
		}
	}
	counts := map[state]int{}
	for _, st := range all {
		mine := under[st.ID]
		switch {
		case len(mine) == 0 && !idle:
			continue
		case st.State != tenure.StateAlive:
			v.Closed++
			continue
		}
		s := session{SessionStatus: st, State: held, Count: len(mine)}
		switch {
		case !st.Alive:
			s.State = expired
		case server.Late(st.Unchanged, st.Heartbeat, st.Lease):
			s.State = inDoubt
		}
		s.Locks, s.More = linksOf(mine)
		counts[s.State]++
		v.Rows = append(v.Rows, s)
	}
	first := []state{inDoubt, expired, held} // what an operator should see first
	slices.SortFunc(v.Rows, func(a, b session) int {
		return cmp.Or(cmp.Compare(slices.Index(first, a.State), slices.Index(first, b.State)),
			cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})
	v.Summary = counted(len(v.Rows), "session")
	for _, s := range []state{inDoubt, expired} {
		if counts[s] > 0 {
			v.Summary += ", " + grouped(counts[s]) + " " + string(s)
		}
	}
	v.More = max(0, len(v.Rows)-pageSize)
	v.Rows = v.Rows[:len(v.Rows)-v.More]
}

// linksOf names the locks under a session, the partitions of a group of shards together.
func linksOf(under []*lock) (links []chip, more int) {
	parts := map[string]int{}
	var groups []string
	for _, l := range under {
		group, _, ok := shard.ParseLockName(l.Name)
		switch {
		case ok:
			if parts[group]++; parts[group] == 1 {
				groups = append(groups, group)
			}
		case len(links) < shownLocks:
			links = append(links, chip{Text: l.Name, Link: lockLink(l.Name)})
		default:
			more++
		}
	}
	for _, group := range groups {
		text := counted(parts[group], "partition") + " of " + group
		links = append(links, chip{Text: text, Link: groupLink(group)})
	}
	return links, more
}

// shardsView is the groups of workers there are, and one of them, if it is known.
type shardsView struct {
	Groups  []chip
	Nothing string
	Known   bool
	shard.Status
	Summary string
	Strips  []strip
	Rows    []partition
	Only    []chip // what the partitions are narrowed to
	Pager   pager
	At      time.Time
}

// strip is the partitions of one worker: one column for each partition of the group.
type strip struct {
	shard.MemberStatus
	Place, Class string
	Counts       string  // how many it has, and should have
	Runs         []piece // partitions that stand side by side
}

// partition is one partition of the table.
type partition struct {
	shard.PartitionStatus
	State, Class string
	Who, Plan    string // who has it, and who should
}

// shards shows the groups, and one of them.
func (d *Dashboard) shards(ctx context.Context, who visitor, query url.Values) (*page, *problem) {
	v := &shardsView{}
	p := &page{View: "shards", Title: "Shards", Model: v}
	locks, r := d.list(ctx, "")
	d.note(p, who, r)
	groups := groupsOf(locks.visible(who, ""))
	name := query.Get("group")
	if name == "" && len(groups) == 1 {
		name = groups[0]
	}
	for _, g := range groups {
		v.Groups = append(v.Groups, chip{Text: g, Link: groupLink(g), Here: g == name})
	}
	switch {
	case name != "":
		return p, d.group(ctx, who, name, v, p, query)
	case len(groups) > 0 || !r.good():
	case who.all(access.Read):
		v.Nothing = "There are no groups of workers. Programs that use package shard make them."
	default:
		v.Nothing = "There are no groups of workers that " + who.Name() + " may read."
	}
	return p, nil
}

// groupsOf finds the groups whose records are among the locks.
func groupsOf(locks []*lock) []string {
	found := map[string]bool{}
	for _, l := range locks {
		if name, ok := strings.CutSuffix(l.Name, text.MembershipSuffix); ok {
			found[name] = true
		} else if name, _, ok := shard.ParseLockName(l.Name); ok {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// group shows one group.
func (d *Dashboard) group(
	ctx context.Context, who visitor, name string, v *shardsView, p *page, query url.Values,
) *problem {
	if !who.May(access.Read, shard.SpecName(name)) {
		return notAllowed(who, "read this group")
	}
	st, r := ask(ctx, d.cache, lookPace, "group "+name, func(ctx context.Context) (shard.Status, error) {
		return shard.Read(ctx, d.client, name)
	})
	if errors.Is(r.err, tenure.ErrNotHeld) {
		return refuse(http.StatusNotFound, "No such group", "no worker has ever joined the group %q", printable(name))
	}
	if problem := invalid(r.err); problem != nil {
		return problem
	}
	d.note(p, who, r)
	if !r.good() {
		return nil
	}
	v.Known, v.Status, v.At, v.Strips = true, st, r.at, stripsOf(st)
	v.Summary = fmt.Sprintf("%s, %s: %s owned, %s moving, %s without an owner", counted(len(st.Partitions), "partition"),
		counted(st.Workers, "worker"), grouped(st.Owned), grouped(st.Moving), grouped(st.Unowned))
	if st.Imbalance > 0 {
		v.Summary += fmt.Sprintf("; the fullest worker has %.2f of its share", st.Imbalance)
	}
	v.table(query)
	return nil
}

// The places of what no worker of the membership has.
const (
	placeGone   = -1 // a worker has it that has left the membership
	placeNobody = -2
)

// stripClasses are the classes of workers that are not as they should be.
var stripClasses = map[string]string{
	shard.MemberLeaving: "asked", shard.MemberLeft: "free", shard.MemberDead: "expired",
	shard.MemberUnreadable: "expired", "has left": "asked", "no owner": "expired",
}

// stripsOf returns a strip for each worker, and for the partitions without a worker.
func stripsOf(st shard.Status) (all []strip) {
	rest := []shard.MemberStatus{
		{Place: placeGone, Owner: "not in the membership", State: "has left"},
		{Place: placeNobody, Owner: "nobody", State: "no owner"},
	}
	for _, w := range slices.Concat(st.Members, rest) {
		s := strip{MemberStatus: w, Class: cmp.Or(stripClasses[w.State], "held"), Runs: stripRuns(st.Partitions, w.Place)}
		switch {
		case w.Place >= 0:
			s.Place, s.Counts = strconv.Itoa(w.Place), grouped(w.Owned)+" of "+grouped(w.Planned)
		case len(s.Runs) == 0:
			continue
		case w.Place == placeNobody:
			s.Counts = grouped(st.Unowned)
		}
		all = append(all, s)
	}
	return all
}

// stripClass says what a worker has to do with a partition; "" if nothing.
func stripClass(p shard.PartitionStatus, place int) string {
	switch has := p.Owner != "" && p.Place == place; {
	case has && p.Planned != place || has && place == placeGone:
		return "leaves"
	case has:
		return "has"
	case place >= 0 && p.Planned == place:
		return "comes"
	case place == placeNobody && p.Owner == "":
		return "nobody"
	}
	return ""
}

// stripTexts say what a class of a strip means.
var stripTexts = map[string]string{
	"has": "has", "leaves": "has, another should have it", "comes": "should have", "nobody": "has no owner",
}

// stripRuns joins neighbours of one class.
func stripRuns(partitions []shard.PartitionStatus, place int) (runs []piece) {
	width := 100 / float64(max(1, len(partitions)))
	for begin := 0; begin < len(partitions); {
		c, end := stripClass(partitions[begin], place), begin+1
		for end < len(partitions) && stripClass(partitions[end], place) == c {
			end++
		}
		if c != "" {
			title := partitions[begin].ID
			if end-begin > 1 {
				title += " to " + partitions[end-1].ID
			}
			x, w := percent(float64(begin)*width), percent(float64(end-begin)*width)
			runs = append(runs, piece{X: x, W: w, Class: c, Title: printable(title) + ": " + stripTexts[c]})
		}
		begin = end
	}
	return runs
}

// table adds the partitions of one page.
func (v *shardsView) table(query url.Values) {
	owners := map[int]string{}
	for _, w := range v.Members {
		owners[w.Place] = w.Owner
	}
	only, here := query.Get("only"), groupLink(v.Group)
	all := only != "moving" && only != "unowned"
	for _, c := range []chip{
		{"all", "all", here, len(v.Partitions), all},
		{"moving", "asked", here + "&only=moving", v.Moving, only == "moving"},
		{"unowned", "expired", here + "&only=unowned", v.Unowned, only == "unowned"},
	} {
		if c.Here || c.Count > 0 || c.Text == "all" {
			v.Only = append(v.Only, c)
		}
	}
	if !all {
		here += "&only=" + only
	}
	for _, st := range v.Partitions {
		if p := partitionOf(st, owners); all || p.State == only {
			v.Rows = append(v.Rows, p)
		}
	}
	from, err := strconv.Atoi(query.Get("from"))
	if err != nil || from < 0 || from >= len(v.Rows) {
		from = 0
	}
	to, pager := paged(len(v.Rows), from, func(from int) string { return fmt.Sprintf("%s&from=%d", here, from) })
	v.Rows, v.Pager = v.Rows[from:to], pager
}

func partitionOf(st shard.PartitionStatus, owners map[int]string) partition {
	p := partition{PartitionStatus: st, State: "owned", Class: "held", Who: st.Owner, Plan: owners[st.Planned]}
	switch {
	case st.Error != "":
		p.State, p.Class, p.Who = "unreadable", "unreadable", st.Error
	case st.Owner == "":
		p.State, p.Class = "unowned", "expired"
		if st.ReservedFor != "" {
			p.Who = "kept for " + st.ReservedFor
		}
	case st.Planned >= 0 && st.Place != st.Planned:
		p.State, p.Class = "moving", "asked"
	}
	if st.Owner == "" {
		p.Since = time.Time{}
	}
	return p
}

// Link is the address of the page of its lock.
func (p partition) Link(group string) string { return lockLink(shard.LockName(group, p.ID)) }
