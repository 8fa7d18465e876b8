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
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
)

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
	Counts       string  // how many it has, and is to have
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
		v.Nothing = "There is no group of workers. Package shard makes one."
	default:
		v.Nothing = "There is no group of workers that " + who.Name() + " may read."
	}
	return p, nil
}

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
		return refuse(http.StatusNotFound, "No such group", "no worker has ever been in the group %q", printable(name))
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

// stripsOf returns a strip for each worker, and for what none of them has.
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
	"has": "has", "leaves": "has, another is to have it", "comes": "is to have", "nobody": "has no owner",
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
