// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// Status is what the records of a group show.
type Status struct {
	Group string `json:"group"`
	// Epoch is that of the membership, 0 before the first one.
	Epoch uint64 `json:"epoch"`
	// Coordinator is the owner name of the worker that writes the membership, empty without
	// one.
	Coordinator string `json:"coordinator,omitempty"`
	// Members are the workers in the membership, by their places, including those
	// that have left or died since it was written. Workers is how many are running.
	Members []MemberStatus `json:"members"`
	Workers int            `json:"workers"`
	// Partitions are those that the group has, in their order.
	Partitions []PartitionStatus `json:"partitions"`

	// Owned is how many partitions have an owner that is alive, Moving how many
	// of them another one is to have, and Unowned how many have none.
	Owned   int `json:"owned"`
	Moving  int `json:"moving"`
	Unowned int `json:"unowned"`
	// Unassigned is how many partitions the plan gives to no worker, because all are
	// full, or all leave.
	Unassigned int `json:"unassigned"`
	// Imbalance is the largest ratio of what a worker has to its share by
	// weight: 1 if all have exactly that. It is 0 if there are no workers.
	Imbalance float64 `json:"imbalance"`
}

// MemberStatus is one worker of a group.
type MemberStatus struct {
	Place   int     `json:"place"`
	Owner   string  `json:"owner"`
	Session string  `json:"session"`
	Weight  float64 `json:"weight"`
	Zone    string  `json:"zone,omitempty"`
	Max     int     `json:"max,omitempty"`
	Leaving bool    `json:"leaving,omitempty"`
	// State is what is known of the worker: MemberAlive, say.
	State string `json:"state"`
	// Host and Label are those of its client.
	Host  string `json:"host,omitempty"`
	Label string `json:"label,omitempty"`
	// Planned is how many partitions the worker is to have, and Owned how many
	// it has.
	Planned int `json:"planned"`
	Owned   int `json:"owned"`
	// Share is its exact share of the partitions by weight.
	Share float64 `json:"share"`
}

// What is known of a worker, in [MemberStatus.State].
const (
	MemberAlive      = "alive"      // as far as the reader can know
	MemberLeaving    = "leaving"    // alive, and handing over what it has
	MemberLeft       = "left"       // it has closed its session in order
	MemberDead       = "dead"       // it has shown no sign of life for its lease
	MemberUnreadable = "unreadable" // the record of its place cannot be understood
)

// PartitionStatus is one partition of a group.
type PartitionStatus struct {
	ID string `json:"id"`
	// Owner is the owner name of the living worker that has the partition, or empty, and
	// Place its place, -1 if it has left the membership.
	Owner string `json:"owner,omitempty"`
	Place int    `json:"place"`
	// Planned is the place of the worker that should have it, -1 if none has room.
	Planned int `json:"planned"`
	// Token is the present or last owner's.
	Token uint64 `json:"token"`
	// Since is when the owner got it, by the owner's wall clock.
	Since time.Time `json:"since,omitzero"`
	// ReservedFor is the owner name of the worker that takes it next.
	ReservedFor string `json:"reserved_for,omitempty"`
	// CheckpointBytes is how long the checkpoint is.
	CheckpointBytes int `json:"checkpoint_bytes"`
	// Error says why nothing more is known of it.
	Error string `json:"error,omitempty"`
}

// Status reads what the records of the group show: see [Read].
func (g *Group) Status(ctx context.Context) (Status, error) { return Read(ctx, g.client, g.name) }

// Read reads what the records of a group show: the membership, the plan that
// follows from it, and the owner of each partition. It reads each partition's
// record, many in a request where the store can do that. Those that change hands
// meanwhile can be missed. The error matches [tenure.ErrNotHeld] if no worker has ever been in the
// group.
func Read(ctx context.Context, client *tenure.Client, group string) (Status, error) {
	if err := checkName(group); err != nil {
		return Status{}, wrap("status of", group, err)
	}
	st, err := read(ctx, client, group)
	return st, wrap("status of", group, err)
}

func read(ctx context.Context, client *tenure.Client, group string) (Status, error) {
	lead, err := client.Status(ctx, CoordinatorLockName(group))
	if err != nil {
		return Status{}, err
	}
	s, stored, err := readSpec(ctx, client, group)
	if err != nil {
		return Status{}, err
	}
	if !stored {
		return Status{}, tenure.ErrNotHeld
	}
	rec, err := client.Status(ctx, MembershipName(group))
	if err != nil {
		return Status{}, err
	}
	r, _, err := parseMembership(rec.Data)
	if err != nil {
		return Status{}, err
	}
	out := Status{Group: group, Epoch: r.Epoch, Members: []MemberStatus{}, Partitions: []PartitionStatus{}}
	if lead.Held {
		out.Coordinator = lead.Owner
	}
	v := newView(r, s, nil)
	if err := out.partitions(ctx, client, v); err != nil {
		return Status{}, err
	}
	out.members(v)
	return out, out.look(ctx, client)
}

// look reads the workers' descriptions of themselves.
func (out *Status) look(ctx context.Context, client *tenure.Client) error {
	names := make([]string, len(out.Members))
	for i, m := range out.Members {
		names[i] = MemberName(out.Group, m.Place)
	}
	list, errs := client.Statuses(ctx, names, nil)
	for i := range out.Members {
		m, st, err := &out.Members[i], list[i], errs[i]
		if err != nil && !errors.Is(err, tenure.ErrUnreadable) {
			return err
		}
		switch {
		case err != nil:
			m.State = MemberUnreadable
		case st.State == tenure.StateHeld && st.Session == m.Session && st.Held && m.Leaving:
			m.State = MemberLeaving
		case st.State == tenure.StateHeld && st.Session == m.Session && st.Held:
			m.State = MemberAlive
		default:
			if m.State, err = gone(ctx, client, m.Session); err != nil {
				return err
			}
		}
		if err == nil && st.Session == m.Session {
			m.Owner, m.Host, m.Label = st.Owner, st.Host, st.Label // the membership has the owner shortened
		}
		if m.State == MemberAlive || m.State == MemberLeaving {
			out.Workers++
		}
	}
	return nil
}

// gone says how a worker has gone whose place shows no living owner: it has left if its
// session was closed, by itself, or so long ago that nothing is left of it.
func gone(ctx context.Context, client *tenure.Client, session string) (string, error) {
	st, err := client.SessionStatus(ctx, session, nil)
	switch {
	case errors.Is(err, tenure.ErrUnreadable):
		return MemberUnreadable, nil
	case err != nil:
		return "", err
	case st.State == tenure.StateClosed && st.End == tenure.EndExpired, st.State == tenure.StateAlive && !st.Alive:
		return MemberDead, nil
	}
	return MemberLeft, nil
}

func (out *Status) partitions(ctx context.Context, client *tenure.Client, v *view) error {
	for from := 0; from < len(v.ids); from += looksAtOnce {
		ids := v.ids[from:min(len(v.ids), from+looksAtOnce)]
		list, errs := client.Statuses(ctx, lockNames(out.Group, ids), nil)
		for i, st := range list {
			if errs[i] != nil && !errors.Is(errs[i], tenure.ErrUnreadable) {
				return errs[i]
			}
			out.Partitions = append(out.Partitions, partitionStatus(v, ids[i], v.plan.Owner(from+i), st, errs[i]))
		}
	}
	for _, p := range out.Partitions {
		if p.Owner == "" {
			out.Unowned++
			continue
		}
		out.Owned++
		if p.Planned != plan.None && p.Planned != p.Place {
			out.Moving++
		}
	}
	out.Unassigned = len(v.plan.Unassigned())
	return nil
}

func partitionStatus(v *view, id string, planned int, st tenure.Status, err error) PartitionStatus {
	p := PartitionStatus{
		ID: id, Place: plan.None, Planned: planned, Token: st.Token,
		ReservedFor: st.ReservedFor, CheckpointBytes: len(st.Data),
	}
	if err != nil {
		p.Error = err.Error()
	}
	if !st.Held {
		return p
	}
	p.Owner, p.Since = st.Owner, st.Since
	if m, in := v.in[st.Session]; in {
		p.Place = m.Place
	}
	return p
}

func (out *Status) members(v *view) {
	owned := map[int]int{}
	for _, p := range out.Partitions {
		owned[p.Place]++
	}
	total := 0.0
	for _, m := range v.in {
		if m.active() {
			total += m.Weight
		}
	}
	for _, m := range v.in {
		ms := MemberStatus{
			Place: m.Place, Owner: m.Owner, Session: m.Session, Weight: m.Weight, Zone: m.Zone, Max: m.Max,
			Leaving: m.Leaving, Planned: len(v.plan.Of(m.Place)), Owned: owned[m.Place],
		}
		if m.active() {
			ms.Share = float64(len(v.ids)) * m.Weight / total
			out.Imbalance = max(out.Imbalance, float64(ms.Owned)/ms.Share)
		}
		out.Members = append(out.Members, ms)
	}
	slices.SortFunc(out.Members, func(a, b MemberStatus) int { return cmp.Compare(a.Place, b.Place) })
}
