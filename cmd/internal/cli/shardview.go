// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
)

// groupView is a group of partitions, as it was seen.
type groupView struct {
	shard.Status
	moves   []move
	unowned []unowned
}

// move is how many partitions one worker has that another one is to have.
type move struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Partitions int    `json:"partitions"`
}

// unowned is how many partitions nobody has, for one reason.
type unowned struct {
	Reason     string `json:"reason"`
	Partitions int    `json:"partitions"`
}

// lookAtGroup reads what the records of a group show. One that never was has
// no partitions.
func lookAtGroup(ctx context.Context, client *tenure.Client, group string) (groupView, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	st, err := shard.Read(ctx, client, group)
	if errors.Is(err, tenure.ErrNotHeld) {
		return groupView{Status: shard.Status{Group: group}}, nil
	}
	if err != nil {
		return groupView{}, err
	}
	v := groupView{Status: st}
	v.count()
	return v, nil
}

// count says which partitions move, and why nobody has the others.
func (v *groupView) count() {
	moves, reasons := map[move]int{}, map[string]int{}
	for _, p := range v.Partitions {
		if to, ok := v.movesTo(p); ok {
			moves[move{From: p.Owner, To: to}]++
		} else if p.Owner == "" {
			reasons[v.reason(p)]++
		}
	}
	for m, n := range moves {
		m.Partitions = n
		v.moves = append(v.moves, m)
	}
	for reason, n := range reasons {
		v.unowned = append(v.unowned, unowned{reason, n})
	}
	slices.SortFunc(v.moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(b.Partitions, a.Partitions), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	slices.SortFunc(v.unowned, func(a, b unowned) int {
		return cmp.Or(cmp.Compare(b.Partitions, a.Partitions), cmp.Compare(a.Reason, b.Reason))
	})
}

// movesTo returns the planned owner of a partition that another worker has.
func (v *groupView) movesTo(p shard.PartitionStatus) (to string, ok bool) {
	w, planned := v.at(p.Planned)
	return w.Owner, planned && p.Owner != "" && p.Place != p.Planned
}

// reason says why nobody has a partition.
func (v *groupView) reason(p shard.PartitionStatus) string {
	w, planned := v.at(p.Planned)
	switch {
	case p.Error != "":
		return "cannot be read: " + p.Error
	case p.ReservedFor != "":
		return "reserved for " + p.ReservedFor
	case v.Workers == 0:
		return "no worker is there"
	case !planned && !slices.ContainsFunc(v.Members,
		func(w shard.MemberStatus) bool { return w.State == shard.MemberAlive }):
		return "all workers leave"
	case !planned:
		return "all workers are full"
	case w.State == shard.MemberDead:
		return w.Owner + " is to have it, and is dead"
	case w.State == shard.MemberLeft:
		return w.Owner + " is to have it, and has left"
	}
	return w.Owner + " is to claim it"
}

// at returns the worker in a place of the group.
func (v *groupView) at(place int) (shard.MemberStatus, bool) {
	i := slices.IndexFunc(v.Members, func(w shard.MemberStatus) bool { return w.Place == place })
	if i < 0 {
		return shard.MemberStatus{}, false
	}
	return v.Members[i], true
}

// text shows the group as tables.
func (v *groupView) text(st style, partitions bool) string {
	if len(v.Partitions) == 0 {
		return fmt.Sprintf("no worker has been in %q yet\n", v.Group)
	}
	out := st.line("", v.heading()) + st.line("", v.summary())
	var cells [][]string
	var colours []string
	add := func(colour string, line ...string) { cells, colours = append(cells, line), append(colours, colour) }
	show := func(head ...string) {
		if len(cells) > 0 {
			out += "\n" + st.table(slices.Insert(cells, 0, head), colours)
		}
		cells, colours = nil, nil
	}
	for _, w := range v.Members {
		add(memberColour(w), memberCells(w)...)
	}
	show("PLACE", "WORKER", "STATE", "HELD", "PLANNED", "SHARE", "WEIGHT", "MAX", "ZONE", "HOST", "LABEL")
	for _, m := range v.moves {
		add("", strconv.Itoa(m.Partitions), m.From, m.To)
	}
	show("MOVING", "FROM", "TO")
	for _, u := range v.unowned {
		add(escRed, strconv.Itoa(u.Partitions), u.Reason)
	}
	show("NO OWNER", "WHY")
	if partitions {
		for _, p := range v.Partitions {
			line, colour := v.cells(p)
			add(colour, line...)
		}
		show("PARTITION", "OWNER", "PLANNED", "TOKEN", "SINCE", "CHECKPOINT")
	}
	return out
}

// workers says how many workers are there, and how many are dead: those that have left
// are on the roll for a while yet.
func (v *groupView) workers() string {
	text, dead := counted(v.Workers, "worker"), 0
	for _, w := range v.Members {
		if w.State == shard.MemberDead {
			dead++
		}
	}
	if dead > 0 {
		text += fmt.Sprintf(" and %d dead", dead)
	}
	return text
}

func (v *groupView) heading() string {
	coordinator := "no coordinator"
	if v.Coordinator != "" {
		coordinator = "coordinator " + v.Coordinator
	}
	return fmt.Sprintf("%s: %s, %s, epoch %d, %s", v.Group, counted(len(v.Partitions), "partition"), v.workers(), v.Epoch,
		coordinator)
}

// summary says how many partitions have owners, and how evenly.
func (v *groupView) summary() string {
	text := fmt.Sprintf("%d owned, %d moving, %d without owner", v.Owned, v.Moving, v.Unowned)
	if v.Unassigned > 0 {
		text += fmt.Sprintf(", %d unassigned", v.Unassigned)
	}
	if v.Imbalance > 0 {
		text += fmt.Sprintf("; balance %.2f", v.Imbalance)
	}
	return text
}

func memberColour(w shard.MemberStatus) string {
	switch w.State {
	case shard.MemberAlive:
		return escGreen
	case shard.MemberLeaving, shard.MemberLeft:
		return escDim
	}
	return escRed
}

func memberCells(w shard.MemberStatus) []string {
	limit, share := "", ""
	if w.Max > 0 {
		limit = strconv.Itoa(w.Max)
	}
	if w.Share > 0 {
		share = fmt.Sprintf("%.1f", w.Share)
	}
	return dashed([]string{
		strconv.Itoa(w.Place), w.Owner, w.State, strconv.Itoa(w.Owned), strconv.Itoa(w.Planned), share,
		fmt.Sprintf("%.4g", w.Weight), limit, w.Zone, w.Host, w.Label,
	})
}

// cells are the columns of a partition, and their colour.
func (v *groupView) cells(p shard.PartitionStatus) ([]string, string) {
	colour, token, since := "", "", ""
	w, _ := v.at(p.Planned)
	owner, planned := p.Owner, w.Owner
	if _, moving := v.movesTo(p); owner == "" {
		colour = escRed
	} else if moving {
		colour = escBold
	}
	if p.Token > 0 {
		token = formatToken(p.Token)
	}
	if p.Owner != "" {
		since = clockText(p.Since)
	}
	if p.Error != "" {
		owner = stateUnreadable
	}
	return dashed([]string{p.ID, owner, planned, token, since, bytesText(p.CheckpointBytes)}), colour
}

func bytesText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d B", n)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
