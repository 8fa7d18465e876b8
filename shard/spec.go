// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tenurelock/tenure"
)

// spec is which partitions a group has: what the store keeps of that, as the data
// of a lock that nobody holds but to change it. Either Count or Names is set.
type spec struct {
	// Revision is one higher with every change, so that one that was changed to
	// and fro is read again.
	Revision uint64   `json:"revision"`
	Count    int      `json:"partitions,omitempty"`
	Names    []string `json:"names,omitempty"`

	// BaseCount or BaseNames are the partitions from which the plan begins,
	// where they are others: with them, a few more or less move next to nothing.
	BaseCount int      `json:"base,omitempty"`
	BaseNames []string `json:"base_names,omitempty"`

	// Zones are those in which partitions are better worked on, by their names.
	Zones map[string]string `json:"zones,omitempty"`
}

// base returns the names from which the plan begins, nil if they are those of the
// partitions.
func (s spec) base() []string {
	if s.BaseCount == 0 && len(s.BaseNames) == 0 {
		return nil
	}
	return spec{Count: s.BaseCount, Names: s.BaseNames}.ids()
}

// after returns s as it follows upon a former one: with its base, unless s is so
// different from it, or both are so long, that the plan had better begin anew.
func (s spec) after(former spec) spec {
	base := former.base()
	if base == nil {
		base = former.ids()
	}
	in := make(map[string]bool, len(base))
	for _, id := range base {
		in[id] = true
	}
	ids := s.ids()
	kept := 0
	for _, id := range ids {
		if in[id] {
			kept++
		}
	}
	if different := len(ids) + len(base) - 2*kept; different == 0 || different > len(base)/levelled {
		return s
	}
	next := s
	if former.Names == nil && former.BaseNames == nil {
		next.BaseCount = len(base)
	} else {
		next.BaseNames = base
	}
	if len(next.bytes()) > maxDataLen-revisionRoom {
		return s
	}
	return next
}

// levelled is the part of the base in which the partitions may be others before
// the plan begins anew: then it is even, and many move.
const levelled = 4

func newSpec(count int, names []string, zones map[string]string) (spec, error) {
	s, err := newNames(count, names)
	if err != nil {
		return spec{}, err
	}
	for id, zone := range zones {
		if err := errors.Join(checkID(id), checkText("zone", zone, maxZoneLen)); err != nil {
			return spec{}, err
		}
	}
	if len(zones) > 0 {
		s.Zones = maps.Clone(zones)
	}
	if data := s.bytes(); len(data) > maxDataLen-revisionRoom {
		return spec{}, fmt.Errorf("the names and the zones of %d partitions take %d bytes: at most %d are allowed; use shorter ones, or fewer",
			s.len(), len(data), maxDataLen-revisionRoom)
	}
	return s, nil
}

func newNames(count int, names []string) (spec, error) {
	if len(names) == 0 {
		if count < 1 || count > MaxPartitions {
			return spec{}, fmt.Errorf("partitions %d must be from 1 to %d", count, MaxPartitions)
		}
		return spec{Count: count}, nil
	}
	seen := make(map[string]bool, len(names))
	for _, id := range names {
		if err := checkID(id); err != nil {
			return spec{}, err
		}
		if seen[id] {
			return spec{}, fmt.Errorf("partition name %q is given twice", id)
		}
		seen[id] = true
	}
	return spec{Names: names}, nil
}

// revisionRoom is how much longer a spec gets by a higher revision at most.
const revisionRoom = 20

func (s spec) bytes() []byte { return mustMarshal(s) }

func (s spec) len() int {
	if s.Names != nil {
		return len(s.Names)
	}
	return s.Count
}

// ids returns the names of the partitions, by their index.
func (s spec) ids() []string {
	if s.Names != nil {
		return s.Names
	}
	ids := make([]string, s.Count)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	return ids
}

func (s spec) same(t spec) bool {
	return s.Count == t.Count && slices.Equal(s.Names, t.Names) && maps.Equal(s.Zones, t.Zones)
}

// parseSpec reads the data of a spec record. It returns false if nothing was laid
// down yet.
func parseSpec(data []byte) (s spec, ok bool, err error) {
	if len(data) == 0 {
		return spec{}, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if d.Decode(&s) != nil || d.More() || s.Revision == 0 || s.Count != 0 && s.Names != nil {
		err = errUnreadableSpec
	} else {
		_, err = newSpec(s.Count, s.Names, s.Zones)
	}
	if err != nil {
		return spec{}, false, fmt.Errorf("%w: the partitions are %.60q: %w", tenure.ErrUnreadable, data, err)
	}
	return s, true, nil
}

var errUnreadableSpec = errors.New("not what this version writes")

// readSpec reads which partitions there are, past every cache. It returns false
// if that is not stored.
func readSpec(ctx context.Context, client *tenure.Client, group string) (spec, bool, error) {
	st, err := client.Status(ctx, SpecName(group))
	if err != nil {
		return spec{}, false, err
	}
	return parseSpec(st.Data)
}

// changeSpec changes it, one change at a time: under the lease of its record, so
// that what it was before is known, and a write that is late does no harm.
func changeSpec(ctx context.Context, client *tenure.Client, group string, to func(s spec, stored bool) spec) (spec, error) {
	l, err := client.Acquire(ctx, SpecName(group), nil)
	if err != nil {
		return spec{}, err
	}
	defer func() { _ = l.Release(context.WithoutCancel(ctx)) }() // it runs out by itself
	s, stored, err := readSpec(ctx, client, group)
	if err != nil {
		return spec{}, err
	}
	next := to(s, stored)
	if stored && next.same(s) {
		return s, nil
	}
	if stored {
		next = next.after(s)
	}
	next.Revision = s.Revision + 1
	if err := l.SetData(ctx, next.bytes()); err != nil {
		return spec{}, err
	}
	return next, nil
}

// Resize sets the number of partitions, for all workers, with the names "0", "1"
// and so on. It is in the store when Resize returns, and comes to the workers
// with the next plan.
//
// A partition that is added is claimed by its planned owner. One that is taken
// away is released by the worker that has it, when its handler has returned. Its
// lock stays, with its token and its checkpoint: added again, it goes on from
// there.
//
// An error that matches [tenure.ErrUncertain] says that the number may be
// changed, or not.
func (g *Group) Resize(ctx context.Context, partitions int) error {
	return wrap("resize", g.name, setSpec(ctx, g.client, g.name, partitions, nil))
}

// SetPartitions is as Resize, with the names of the partitions. Those that were
// there before stay with their owners as far as the plan allows.
func (g *Group) SetPartitions(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return wrap("set partitions of", g.name, errors.New("no partitions are named"))
	}
	return wrap("set partitions of", g.name, setSpec(ctx, g.client, g.name, 0, names))
}

func setSpec(ctx context.Context, client *tenure.Client, group string, count int, names []string) error {
	next, err := newSpec(count, slices.Clone(names), nil)
	if err != nil {
		return err
	}
	_, err = changeSpec(ctx, client, group, func(s spec, _ bool) spec {
		next.Zones = s.Zones // of partitions that are not there they mean nothing
		return next
	})
	return err
}

// SetZones sets the zones in which partitions are better worked on, by their
// names, in place of those that were set before: see [Options.Zones].
func (g *Group) SetZones(ctx context.Context, zones map[string]string) error {
	_, err := newSpec(1, nil, zones)
	if err != nil {
		return wrap("set zones of", g.name, err)
	}
	_, err = changeSpec(ctx, g.client, g.name, func(s spec, stored bool) spec {
		if !stored {
			s = g.initial
		}
		s.Zones = maps.Clone(zones)
		return s
	})
	return wrap("set zones of", g.name, err)
}
