// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
)

// shardsModel is the groups there are, and one of them.
type shardsModel struct {
	Groups  []chip
	Nothing string
	Known   bool
	Group   *groupModel
}

// groupModel is one group of workers.
type groupModel struct {
	Name, Link  string
	Summary     string
	Coordinator string
	Epoch       string
	Strips      []strip
	Rows        []partitionRow
	Only        []chip // what the partitions are narrowed to
	Place       string
	Prev, Next  string
}

// strip is the partitions of one worker: one column for each partition of the group.
type strip struct {
	Place, Owner, State, Class string
	Host, Label, Zone          string
	Counts                     string // how many it has, and is to have
	Runs                       []run
	Nobody                     bool
}

// run is some partitions that stand side by side. Places are in per cent.
type run struct{ X, W, Class, Title string }

// partitionRow is one partition of the table.
type partitionRow struct {
	ID, Name, Link string
	Owner, Planned string
	State          string
	Class          string
	Token          string
	Ago, Since     string
	Data           string
}

func (d *Dashboard) readGroup(ctx context.Context, name string) (shard.Status, error) {
	return shard.Read(ctx, d.client, name)
}

// shards shows the groups, and one of them.
func (d *Dashboard) shards(ctx context.Context, who visitor, query url.Values) (*page, *problem) {
	m := &shardsModel{}
	p := &page{View: "shards", Title: "Shards", Model: m}
	locks := d.census(ctx, "")
	p.Status, m.Known = storeStatus(locks.err, locks.good), locks.good
	if locks.err != nil {
		p.Alerts = append(p.Alerts, d.storeAlert(who, locks.err, locks.good, locks.at))
	}
	name := query.Get("group")
	groups := groupsOf(visible(locks.value.locks, who, ""))
	if name == "" && len(groups) == 1 {
		name = groups[0]
	}
	for _, g := range groups {
		m.Groups = append(m.Groups, chip{Text: g, Link: groupLink(g), Here: g == name})
	}
	if name != "" {
		return p, d.group(ctx, who, name, m, p, query)
	}
	if len(groups) == 0 && m.Known {
		m.Nothing = "There is no group of workers. Package shard makes one."
		if !who.all() {
			m.Nothing = "There is no group of workers that " + who.Name() + " may read."
		}
	}
	return p, nil
}

// group shows one group.
func (d *Dashboard) group(ctx context.Context, who visitor, name string, m *shardsModel, p *page, query url.Values) *problem {
	if !who.May(access.Read, shard.SpecName(name)) {
		return notAllowed(who, "read this group")
	}
	seen := d.groups.ask(ctx, name)
	if errors.Is(seen.err, tenure.ErrNotHeld) {
		return &problem{http.StatusNotFound, "No such group", fmt.Sprintf("no worker has ever been in the group %q", printable(name))}
	}
	if problem := lookProblem(seen.err); problem != nil {
		return problem
	}
	if seen.err != nil && len(p.Alerts) == 0 {
		p.Alerts = append(p.Alerts, d.storeAlert(who, seen.err, seen.good, seen.at))
	}
	p.Status = max(p.Status, storeStatus(seen.err, seen.good))
	if seen.good {
		m.Group = groupOf(seen.value, seen.at, query)
	}
	return nil
}

func groupLink(name string) string { return "shards?group=" + url.QueryEscape(name) }

// groupsOf finds the groups whose records are among the locks.
func groupsOf(locks []*lock) []string {
	found := map[string]bool{}
	for _, l := range locks {
		if name, ok := strings.CutSuffix(l.Name, text.RollSuffix); ok {
			found[name] = true
		} else if name, _, ok := shard.ParseLockName(l.Name); ok {
			found[name] = true
		}
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func groupOf(st shard.Status, at time.Time, query url.Values) *groupModel {
	g := &groupModel{Name: st.Group, Link: groupLink(st.Group), Coordinator: st.Coordinator, Epoch: strconv.FormatUint(st.Epoch, 10)}
	g.Summary = fmt.Sprintf("%s, %s: %s owned, %s moving, %s without an owner",
		counted(len(st.Partitions), "partition"), counted(st.Workers, "worker"), grouped(st.Owned), grouped(st.Moving), grouped(st.Unowned))
	if st.Imbalance > 0 {
		g.Summary += fmt.Sprintf("; the fullest worker has %.2f of its share", st.Imbalance)
	}
	for _, w := range st.Members {
		g.Strips = append(g.Strips, stripOf(w, st.Partitions))
	}
	if left := strayStrip(st.Partitions); len(left.Runs) > 0 {
		g.Strips = append(g.Strips, left)
	}
	if nobody := nobodyStrip(st.Partitions); len(nobody.Runs) > 0 {
		g.Strips = append(g.Strips, nobody)
	}
	g.table(st, at, query)
	return g
}

func stripOf(w shard.MemberStatus, partitions []shard.PartitionStatus) strip {
	s := strip{
		Place: strconv.Itoa(w.Place), Owner: w.Owner, State: w.State, Class: "held", Host: w.Host, Label: w.Label, Zone: w.Zone,
		Counts: fmt.Sprintf("%s of %s", grouped(w.Owned), grouped(w.Planned)),
	}
	switch w.State {
	case shard.MemberLeaving:
		s.Class = "asked"
	case shard.MemberLeft:
		s.Class = "free"
	case shard.MemberDead, shard.MemberUnreadable:
		s.Class = "expired"
	}
	s.Runs = runsOf(partitions, func(p shard.PartitionStatus) string {
		switch {
		case p.Owner != "" && p.Place == w.Place && p.Planned != w.Place:
			return "leaves"
		case p.Owner != "" && p.Place == w.Place:
			return "has"
		case p.Planned == w.Place:
			return "comes"
		}
		return ""
	})
	return s
}

// strayStrip is the partitions of workers that are not in the membership any more.
func strayStrip(partitions []shard.PartitionStatus) strip {
	return strip{Owner: "not in the membership", Class: "asked", State: "has left", Nobody: true, Runs: runsOf(partitions, func(p shard.PartitionStatus) string {
		if p.Owner != "" && p.Place < 0 {
			return "leaves"
		}
		return ""
	})}
}

// nobodyStrip is the partitions that have no owner.
func nobodyStrip(partitions []shard.PartitionStatus) strip {
	n := 0
	s := strip{Owner: "nobody", Class: "expired", State: "no owner", Nobody: true, Runs: runsOf(partitions, func(p shard.PartitionStatus) string {
		if p.Owner == "" {
			n++
			return "nobody"
		}
		return ""
	})}
	s.Counts = grouped(n)
	return s
}

// runWords say what a class of a run means.
var runWords = map[string]string{
	"has": "has", "leaves": "has, another is to have it", "comes": "is to have", "nobody": "has no owner",
}

// runsOf joins neighbours of one class.
func runsOf(partitions []shard.PartitionStatus, class func(shard.PartitionStatus) string) []run {
	var runs []run
	n := float64(len(partitions))
	begin, now := 0, ""
	end := func(i int) {
		if now == "" {
			return
		}
		title := partitions[begin].ID
		if i-begin > 1 {
			title += " to " + partitions[i-1].ID
		}
		runs = append(runs, run{percent(100 * float64(begin) / n), percent(100 * float64(i-begin) / n), now, printable(title) + ": " + runWords[now]})
	}
	for i, p := range partitions {
		if c := class(p); c != now {
			end(i)
			begin, now = i, c
		}
	}
	end(len(partitions))
	return runs
}

// partitionKinds are what the table of partitions can be narrowed to.
var partitionKinds = []string{"moving", "unowned"}

// table adds the partitions of one page.
func (g *groupModel) table(st shard.Status, at time.Time, query url.Values) {
	only := query.Get("only")
	if !slices.Contains(partitionKinds, only) {
		only = ""
	}
	owners := map[int]string{}
	for _, w := range st.Members {
		owners[w.Place] = w.Owner
	}
	var rows []partitionRow
	for _, p := range st.Partitions {
		r := partitionRowOf(st.Group, p, owners, at)
		if only == "" || r.State == only {
			rows = append(rows, r)
		}
	}
	g.Only = []chip{{Text: "all", Class: "all", Link: g.Link, Count: len(st.Partitions), Here: only == ""}}
	for kind, n := range map[string]int{"moving": st.Moving, "unowned": st.Unowned} {
		if n > 0 || only == kind {
			g.Only = append(g.Only, chip{Text: kind, Class: map[string]string{"moving": "asked", "unowned": "expired"}[kind], Link: g.Link + "&only=" + kind, Count: n, Here: only == kind})
		}
	}
	slices.SortFunc(g.Only, func(a, b chip) int { return cmp.Compare(a.Text, b.Text) })
	from, err := strconv.Atoi(query.Get("from"))
	if err != nil || from < 0 || from >= len(rows) {
		from = 0
	}
	to := min(len(rows), from+pageSize)
	here := g.Link
	if only != "" {
		here += "&only=" + only
	}
	if from > 0 {
		g.Prev = fmt.Sprintf("%s&from=%d", here, max(0, from-pageSize))
	}
	if to < len(rows) {
		g.Next = fmt.Sprintf("%s&from=%d", here, to)
	}
	if len(rows) > pageSize {
		g.Place = fmt.Sprintf("%s to %s of %s", grouped(from+1), grouped(to), grouped(len(rows)))
	}
	g.Rows = rows[from:to]
}

func partitionRowOf(group string, p shard.PartitionStatus, owners map[int]string, at time.Time) partitionRow {
	name := shard.LockName(group, p.ID)
	r := partitionRow{ID: idOf(name), Name: p.ID, Link: lockLink(name), Owner: p.Owner, Planned: owners[p.Planned], State: "owned", Class: "held"}
	if p.Token > 0 {
		r.Token = strconv.FormatUint(p.Token, 10)
	}
	if p.CheckpointBytes > 0 {
		r.Data = counted(p.CheckpointBytes, "byte")
	}
	switch {
	case p.Error != "":
		r.State, r.Class, r.Owner = "unreadable", "unreadable", p.Error
	case p.Owner == "":
		r.State, r.Class = "unowned", "expired"
		if p.ReservedFor != "" {
			r.Owner = "kept for " + p.ReservedFor
		}
	case p.Planned >= 0 && p.Place != p.Planned:
		r.State, r.Class = "moving", "asked"
	}
	if p.Owner != "" {
		r.Ago, r.Since = ago(p.Since, at)
	}
	return r
}

func (m *shardsModel) text(w io.Writer) {
	if m.Nothing != "" {
		fmt.Fprintln(w, m.Nothing)
	}
	if m.Group == nil {
		for _, g := range m.Groups {
			fmt.Fprintln(w, printable(g.Text))
		}
		return
	}
	g := m.Group
	fmt.Fprintf(w, "%s: %s\n", printable(g.Name), g.Summary)
	fmt.Fprintf(w, "epoch %s, coordinator %s\n\n", g.Epoch, printable(cmp.Or(g.Coordinator, "none")))
	cells(w, "PLACE", "WORKER", "STATE", "HAS OF PLANNED", "HOST", "LABEL", "ZONE")
	for _, s := range g.Strips {
		cells(w, s.Place, s.Owner, s.State, s.Counts, s.Host, s.Label, s.Zone)
	}
	fmt.Fprintln(w)
	cells(w, "PARTITION", "STATE", "OWNER", "PLANNED", "TOKEN", "FOR")
	for _, r := range g.Rows {
		cells(w, r.Name, r.State, r.Owner, r.Planned, r.Token, r.Ago)
	}
	if g.Place != "" {
		fmt.Fprintln(w, g.Place)
	}
}
