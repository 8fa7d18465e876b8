// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/printable"
)

// print writes the group once.
func (f *shardCmd) print(c *console, v groupView) error {
	var err error
	switch {
	case c.json:
		err = c.object(v.object(f.Partitions))
	case len(v.Partitions) == 0:
		c.say("no worker has been in %q yet", f.Group)
	default:
		err = c.print(v.text(style{}, f.Partitions))
	}
	if err != nil {
		return err
	}
	for _, p := range v.Partitions {
		if p.Error != "" {
			return storeFailed(errors.New(p.Error))
		}
	}
	return nil
}

// watch looks at the group again and again.
func (f *shardCmd) watch(ctx context.Context, c *console, refresh time.Duration, look func() (groupView, error)) error {
	lines := &groupChanges{to: c.stdout, json: c.json, partitions: f.Partitions, outages: outages{console: c}, lines: map[string]string{}}
	return watch(ctx, c, watched[groupView]{
		command: "tenure shard", refresh: refresh, look: look, changes: lines.draw,
		text: func(v groupView, st style) string { return v.text(st, f.Partitions) },
	})
}

// groupChanges writes what changes, for pipes, logs and programs.
type groupChanges struct {
	to               io.Writer
	json, partitions bool
	outages
	object groupJSON
	lines  map[string]string // of partitions
	last   string
}

func (g *groupChanges) draw(v groupView, trouble error) error {
	if g.tell(trouble) {
		return nil
	}
	now := time.Now()
	if g.json {
		o := v.object(g.partitions)
		if reflect.DeepEqual(o, g.object) {
			return nil
		}
		g.object = o
		o.Time = instant(now)
		return writeJSON(g.to, o)
	}
	text := fmt.Sprintf("%s: %s, %s, epoch %d, %s; %s", v.Group, partitionCount(len(v.Partitions)), v.workers(), v.Epoch, v.coordinator(), v.summary())
	if len(v.Partitions) == 0 {
		text = fmt.Sprintf("%s: no worker has been there yet", v.Group)
	}
	if err := g.line(now, &g.last, text); err != nil || !g.partitions {
		return err
	}
	before := g.lines
	g.lines = make(map[string]string, len(v.Partitions))
	for _, p := range v.Partitions {
		text := fmt.Sprintf("%s/%s: ", v.Group, p.ID)
		if to, moving := v.movesTo(p); p.Owner == "" {
			text += "nobody has it: " + v.reason(p)
		} else if text += fmt.Sprintf("%s has it under token %d", p.Owner, p.Token); moving {
			text += ", " + to + " is to have it"
		}
		last := before[p.ID]
		if err := g.line(now, &last, text); err != nil {
			return err
		}
		g.lines[p.ID] = last
	}
	return nil
}

// line writes a line that is not what was written last.
func (g *groupChanges) line(now time.Time, last *string, text string) error {
	if text == *last {
		return nil
	}
	*last = text
	_, err := fmt.Fprintln(g.to, now.Format(time.TimeOnly), printable.Text(text))
	return err
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
	Reason     string `json:"reason,omitempty"` // why nobody has it
}

func (v *groupView) object(partitions bool) groupJSON {
	o := groupJSON{
		Group: v.Group, Epoch: v.Epoch, Coordinator: v.Coordinator,
		Partitions: len(v.Partitions), Workers: v.Workers, Owned: v.Owned, Moving: v.Moving, Unowned: v.Unowned, Unassigned: v.Unassigned,
		Imbalance: v.Imbalance, Members: []memberJSON{}, Moves: append([]move{}, v.moves...), Reasons: append([]unowned{}, v.unowned...),
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
