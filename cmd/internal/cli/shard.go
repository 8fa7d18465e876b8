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
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
)

type shardCmd struct {
	Group string `arg:""`
	readerFlags
	Partitions bool          `short:"p"`
	Watch      bool          `short:"w"`
	Refresh    time.Duration `default:"1s" must:"be a period"`
	Resize     *int
}

// Run shows who has which partitions of a group, or sets how many there are.
func (f *shardCmd) Run(c *console) error {
	if err := f.check(); err != nil {
		return err
	}
	v, err := f.reader(c, f.Watch)
	switch {
	case err != nil:
		return err
	case v == nil && f.Resize != nil:
		return f.nobody()
	case v == nil:
		return f.print(c, groupView{Status: shard.Status{Group: f.Group}})
	}
	defer v.close()
	look := func() (groupView, error) { return lookAtGroup(v.ctx, v.client, f.Group) }
	switch {
	case f.Resize != nil:
		return f.resize(v.ctx, c, v.client)
	case f.Watch:
		return watch(v.ctx, c, watched[groupView]{
			command: "tenure shard", refresh: f.Refresh, look: look,
			text:  func(v groupView, st style) string { return v.text(st, f.Partitions) },
			items: func(v groupView) []item { return v.items(c.json, f.Partitions) },
		})
	}
	seen, err := look()
	if err != nil {
		return readFailed(v.ctx, err)
	}
	return f.print(c, seen)
}

// check finds what is wrong with the command line before a store is touched.
func (f *shardCmd) check() error {
	switch {
	case f.Resize != nil && (f.Watch || f.Partitions):
		return usage("--resize excludes --watch and --partitions")
	case f.Resize != nil && (*f.Resize < 1 || *f.Resize > shard.MaxPartitions):
		return usage("--resize %d must be from 1 to %d", *f.Resize, shard.MaxPartitions)
	}
	if err := check(tenure.Options{}, f.Group); err != nil {
		return err
	}
	return refused(tenure.Options{}, func(_ context.Context, client *tenure.Client) error {
		_, err := shard.New(client, f.Group, &shard.Options{Partitions: 1})
		return err
	})
}

// resize sets the number of partitions. It does not create a group that never ran: its
// name is more likely to be mistyped.
func (f *shardCmd) resize(ctx context.Context, c *console, client *tenure.Client) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	st, err := shard.Read(ctx, client, f.Group)
	if errors.Is(err, tenure.ErrNotHeld) {
		return f.nobody()
	}
	if err != nil {
		return readFailed(ctx, err)
	}
	for i, p := range st.Partitions {
		if p.ID != strconv.Itoa(i) {
			return usage("the partitions of %q have their own names, such as %q: its program changes them, not --resize",
				f.Group, st.Partitions[0].ID)
		}
	}
	g, err := shard.New(client, f.Group, &shard.Options{Partitions: *f.Resize})
	if err != nil {
		return usage("%w", err)
	}
	if err := g.Resize(ctx, *f.Resize); err != nil {
		return readFailed(ctx, err)
	}
	r := resized{Group: f.Group, Result: "resized", Partitions: *f.Resize, Before: len(st.Partitions)}
	if r.Partitions == r.Before {
		r.Result = "unchanged"
		c.result(r, "%q has %s already", f.Group, counted(r.Partitions, "partition"))
		return nil
	}
	then := "its workers apply that with their next plan"
	if len(st.Members) == 0 {
		then = "it has no workers"
	}
	c.result(r, "%q has %s from now on, and had %d; %s", f.Group, counted(r.Partitions, "partition"), r.Before, then)
	return nil
}

type resized struct {
	Group      string `json:"group"`
	Result     string `json:"result"`
	Partitions int    `json:"partitions"`
	Before     int    `json:"partitions_before"`
}

func (f *shardCmd) nobody() error {
	return usage("no worker has ever been in group %q: its workers create the group, with their number of partitions",
		f.Group)
}

func (f *shardCmd) print(c *console, v groupView) error {
	switch {
	case c.json:
		c.object(v.object(f.Partitions))
	case len(v.Partitions) == 0:
		c.say("no worker has joined %q yet", f.Group)
	default:
		c.put(v.text(style{}, f.Partitions))
	}
	for _, p := range v.Partitions {
		if p.Error != "" {
			return storeFailed(errors.New(p.Error))
		}
	}
	return nil
}

// items returns the group for --watch: one object, or lines for it and for each partition.
func (v *groupView) items(object, partitions bool) []item {
	if object {
		o := v.object(partitions)
		return []item{{state: fmt.Sprintf("%+v", o), object: func(seen time.Time) any {
			o.Time = instant(seen)
			return o
		}}}
	}
	text := v.heading() + "; " + v.summary()
	if len(v.Partitions) == 0 {
		text = fmt.Sprintf("%s: no worker has joined yet", v.Group)
	}
	all := []item{{state: text, text: text}}
	if !partitions {
		return all
	}
	for _, p := range v.Partitions {
		text := fmt.Sprintf("%s/%s: ", v.Group, p.ID)
		if to, moving := v.movesTo(p); p.Owner == "" {
			text += "no worker has it: " + v.reason(p)
		} else if text += fmt.Sprintf("%s has it under token %d", p.Owner, p.Token); moving {
			text += ", " + to + " should have it"
		}
		all = append(all, item{key: p.ID, state: text, text: text})
	}
	return all
}

// groupJSON is a group as an object of --json.
type groupJSON struct {
	Time        string `json:"time,omitempty"` // with --watch: when it was seen
	Group       string `json:"group"`
	Epoch       uint64 `json:"epoch"`
	Coordinator string `json:"coordinator,omitempty"`

	Workers    int `json:"workers"` // that are there
	Partitions int `json:"partitions"`
	Owned      int `json:"owned"`
	Moving     int `json:"moving"`
	Unowned    int `json:"unowned"`
	Unassigned int `json:"unassigned"`

	Imbalance float64      `json:"imbalance"`
	Members   []memberJSON `json:"members"`
	Moves     []move       `json:"moves"`
	Reasons   []unowned    `json:"unowned_reasons"`

	Assignment []partitionJSON `json:"assignment,omitempty"` // with --partitions
}

type memberJSON struct {
	Place   int     `json:"place"`
	Owner   string  `json:"owner"`
	Session string  `json:"session"`
	State   string  `json:"state"`
	Host    string  `json:"host,omitempty"`
	Label   string  `json:"label,omitempty"`
	Zone    string  `json:"zone,omitempty"`
	Weight  float64 `json:"weight"`
	Max     int     `json:"max,omitempty"`
	Planned int     `json:"planned"`
	Held    int     `json:"held"`
	Share   float64 `json:"share"`
}

type partitionJSON struct {
	ID         string `json:"id"`
	Owner      string `json:"owner,omitempty"`
	Planned    string `json:"planned_owner,omitempty"`
	Token      uint64 `json:"token"`
	Since      string `json:"since,omitempty"`
	Reserved   string `json:"reserved_for,omitempty"`
	Checkpoint int    `json:"checkpoint_bytes"`
	Reason     string `json:"reason,omitempty"` // why no worker has it
}

func (v *groupView) object(partitions bool) groupJSON {
	o := groupJSON{
		Group: v.Group, Epoch: v.Epoch, Coordinator: v.Coordinator,
		Workers: v.Workers, Partitions: len(v.Partitions),
		Owned: v.Owned, Moving: v.Moving, Unowned: v.Unowned, Unassigned: v.Unassigned, Imbalance: v.Imbalance,
		Members: []memberJSON{}, Moves: append([]move{}, v.moves...), Reasons: append([]unowned{}, v.unowned...),
	}
	for _, w := range v.Members {
		o.Members = append(o.Members, memberJSON{
			Place: w.Place, Owner: w.Owner, Session: w.Session, State: w.State, Host: w.Host, Label: w.Label,
			Zone: w.Zone, Weight: w.Weight, Max: w.Max, Planned: w.Planned, Held: w.Owned, Share: w.Share,
		})
	}
	if !partitions {
		return o
	}
	for _, p := range v.Partitions {
		w, _ := v.at(p.Planned)
		one := partitionJSON{
			ID: p.ID, Owner: p.Owner, Planned: w.Owner, Token: p.Token, Since: instant(p.Since),
			Reserved: p.ReservedFor, Checkpoint: p.CheckpointBytes,
		}
		if p.Owner == "" {
			one.Reason = v.reason(p)
		}
		o.Assignment = append(o.Assignment, one)
	}
	return o
}

type groupView struct {
	shard.Status
	moves   []move
	unowned []unowned
}

type move struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Partitions int    `json:"partitions"`
}

type unowned struct {
	Reason     string `json:"reason"`
	Partitions int    `json:"partitions"`
}

// lookAtGroup reads what the records of a group show. A group that never existed has
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

// count says which partitions move, and why the others have no worker.
func (v *groupView) count() {
	moves, reasons := map[move]int{}, map[unowned]int{}
	for _, p := range v.Partitions {
		if to, ok := v.movesTo(p); ok {
			moves[move{From: p.Owner, To: to}]++
		} else if p.Owner == "" {
			reasons[unowned{Reason: v.reason(p)}]++
		}
	}
	for m, n := range moves {
		v.moves = append(v.moves, move{m.From, m.To, n})
	}
	for u, n := range reasons {
		v.unowned = append(v.unowned, unowned{u.Reason, n})
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

func (v *groupView) reason(p shard.PartitionStatus) string {
	w, planned := v.at(p.Planned)
	switch {
	case p.Error != "":
		return "cannot be read: " + p.Error
	case p.ReservedFor != "":
		return "reserved for " + p.ReservedFor
	case v.Workers == 0:
		return "there is no worker"
	case !planned && !slices.ContainsFunc(v.Members,
		func(w shard.MemberStatus) bool { return w.State == shard.MemberAlive }):
		return "all workers leave"
	case !planned:
		return "all workers are full"
	case w.State == shard.MemberDead:
		return w.Owner + " should have it, but is dead"
	case w.State == shard.MemberLeft:
		return w.Owner + " should have it, but has left"
	}
	return w.Owner + " will claim it"
}

func (v *groupView) at(place int) (shard.MemberStatus, bool) {
	i := slices.IndexFunc(v.Members, func(w shard.MemberStatus) bool { return w.Place == place })
	if i < 0 {
		return shard.MemberStatus{}, false
	}
	return v.Members[i], true
}

func (v *groupView) text(st style, partitions bool) string {
	if len(v.Partitions) == 0 {
		return fmt.Sprintf("no worker has joined %q yet\n", v.Group)
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
		line, colour := memberCells(w)
		add(colour, line...)
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

// heading also says how many workers are dead: workers that have left remain members for a while.
func (v *groupView) heading() string {
	workers, dead, coordinator := counted(v.Workers, "worker"), 0, "no coordinator"
	for _, w := range v.Members {
		if w.State == shard.MemberDead {
			dead++
		}
	}
	if dead > 0 {
		workers += fmt.Sprintf(" and %d dead", dead)
	}
	if v.Coordinator != "" {
		coordinator = "coordinator " + v.Coordinator
	}
	return fmt.Sprintf("%s: %s, %s, epoch %d, %s",
		v.Group, counted(len(v.Partitions), "partition"), workers, v.Epoch, coordinator)
}

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

func memberCells(w shard.MemberStatus) ([]string, string) {
	colour, limit, share := escRed, "", ""
	switch w.State {
	case shard.MemberAlive:
		colour = escGreen
	case shard.MemberLeaving, shard.MemberLeft:
		colour = escDim
	}
	if w.Max > 0 {
		limit = strconv.Itoa(w.Max)
	}
	if w.Share > 0 {
		share = fmt.Sprintf("%.1f", w.Share)
	}
	return dashed([]string{
		strconv.Itoa(w.Place), w.Owner, w.State, strconv.Itoa(w.Owned), strconv.Itoa(w.Planned), share,
		fmt.Sprintf("%.4g", w.Weight), limit, w.Zone, w.Host, w.Label,
	}), colour
}

func (v *groupView) cells(p shard.PartitionStatus) ([]string, string) {
	colour, token, since, checkpoint := escRed, "", "", ""
	planned, _ := v.at(p.Planned)
	owner := p.Owner
	if owner != "" {
		colour, since = "", clockText(p.Since)
	}
	if _, moving := v.movesTo(p); moving {
		colour = escBold
	}
	if p.Token > 0 {
		token = formatToken(p.Token)
	}
	if p.Error != "" {
		owner = stateUnreadable
	}
	if p.CheckpointBytes > 0 {
		checkpoint = fmt.Sprintf("%d B", p.CheckpointBytes)
	}
	return dashed([]string{p.ID, owner, planned.Owner, token, since, checkpoint}), colour
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
