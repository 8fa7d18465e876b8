// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// spec describes the partitions of a group. It is stored as the data of a lock that is
// held only to change it. Either Count or Names is set.
type spec struct {
	// Revision grows by one with every change, so that a spec that was changed and changed
	// back is read again.
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

// after returns s as the successor of a former spec: with its base, unless s is so
// different from it, or both are so long, that the plan should get a new base.
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

// levelled is the fraction of the base that may differ from the partitions before the
// plan gets a new base: then it is even, and many move.
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

// parseSpec reads the data of a spec record. It returns false if none is stored yet.
func parseSpec(data []byte) (s spec, ok bool, err error) {
	if len(data) == 0 {
		return spec{}, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if d.Decode(&s) != nil || d.More() || s.Revision == 0 || s.Count != 0 && s.Names != nil {
		err = errUnreadableSpec
	} else {
		_, err = newSpec(s.Count, s.Names, s.Zones)
		if err == nil && (s.BaseCount != 0 || s.BaseNames != nil) {
			_, err = newNames(s.BaseCount, s.BaseNames)
		}
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
	defer func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), client.Options().RequestTimeout)
		defer stop()
		_ = l.Release(ctx) // it goes on in the background, or the lease runs out
	}()
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
// and so on. It is in the store when Resize returns, and reaches the workers with the
// next plan.
//
// An added partition is claimed by its planned owner. A removed partition is released by
// its owner when the handler has returned. Its lock stays, with its token and its
// checkpoint: added again, it continues from there.
//
// An error that matches [tenure.ErrUncertain] says that the number may be
// changed, or not.
func (g *Group) Resize(ctx context.Context, partitions int) error {
	return wrap("resize", g.name, setSpec(ctx, g.client, g.name, partitions, nil))
}

// SetPartitions is Resize with partition names. Former partitions stay with their owners
// as far as the plan allows.
func (g *Group) SetPartitions(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return wrap("set partitions of", g.name, errors.New("the list of partitions is empty"))
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
// names, and replaces former ones: see [Options.Zones].
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

// Limits of names. A lock's name has room for both and the infix.
const (
	// MaxNameLen is the longest name of a group in bytes.
	MaxNameLen = 512
	// MaxIDLen is the longest name of a partition in bytes.
	MaxIDLen = 256
)

// maxDataLen is package tenure's limit, too. It is checked here first, so that a mistake is
// not taken for an error of the store.
const maxDataLen = 256 << 10

// LockName returns the name of a partition's lock. It is the resource that the
// partition's token fences.
func LockName(group, id string) string { return group + text.PartInfix + id }

func lockNames(group string, ids []string) []string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = LockName(group, id)
	}
	return names
}

// CoordinatorLockName returns the name of the lock that the coordinator of the group holds.
func CoordinatorLockName(group string) string { return group + text.LeadSuffix }

// MembershipName returns the name of the lock whose data is the membership of the group.
func MembershipName(group string) string { return group + text.MembershipSuffix }

// SpecName returns the name of the lock whose data describe the group's partitions.
func SpecName(group string) string { return group + text.SpecSuffix }

// MemberName returns the name of the lock that the worker in a place of the group
// holds.
func MemberName(group string, place int) string {
	return group + text.MemberInfix + strconv.Itoa(place)
}

// ParseLockName is the reverse of [LockName]. It returns false if lock is not
// the name of a partition.
func ParseLockName(lock string) (group, id string, ok bool) {
	// The first one counts: a group's name has none in it, a partition's may.
	group, id, ok = strings.Cut(lock, text.PartInfix)
	if !ok || group == "" || id == "" {
		return "", "", false
	}
	return group, id, true
}

// notOurs is the error if a lock that the coordinator needs has a foreign holder: no
// worker plans meanwhile.
func notOurs(lock, owner string, token uint64) error {
	return fmt.Errorf("lock %q is held by %q (token %d), which does not coordinate the group, so no worker can plan: "+
		"stop its holder, or rename that lock or the group", lock, owner, token)
}

func checkName(name string) error {
	if err := text.CheckName("group name", name, MaxNameLen); err != nil {
		return err
	}
	for _, infix := range []string{text.PartInfix, text.MemberInfix} {
		if strings.Contains(name+infix[:len(infix)-1], infix) || strings.Contains(name, infix) {
			return fmt.Errorf("group name %.40q has %q in it: the rest of it would be taken for a part of the group", name, infix)
		}
	}
	return nil
}

func checkID(id string) error {
	return cmp.Or(checkText("partition name", id, MaxIDLen), text.CheckEnds("partition name", id))
}

func checkText(what, s string, most int) error {
	return cmp.Or(text.CheckNotEmpty(what, s, most), text.Check(what, s, most))
}

// memberInfo describes a worker. It is the data of the lock of its place.
type memberInfo struct {
	Weight  float64 `json:"weight"`
	Zone    string  `json:"zone,omitempty"`
	Max     int     `json:"max,omitempty"`
	Leaving bool    `json:"leaving,omitempty"`
	Awaits  int     `json:"awaits,omitempty"`
	Address string  `json:"address,omitempty"`
}

func (p memberInfo) bytes() []byte { return mustMarshal(p) }

// parseProfile reads the data of a place. It ignores fields of later versions.
func parseMemberInfo(data []byte) (memberInfo, bool) {
	var p memberInfo
	if json.Unmarshal(data, &p) != nil || !(p.Weight >= minWeight && p.Weight <= maxWeight) || p.Max < 0 || p.Awaits < 0 {
		return memberInfo{}, false
	}
	return p, len(p.Zone) <= maxZoneLen
}

// member is one place in the membership. A place without a session is vacant. It stays
// in the membership so that a worker that returns to it gets its partitions back.
type member struct {
	Place   int     `json:"place"`
	Session string  `json:"session,omitempty"`
	Owner   string  `json:"owner,omitempty"` // shortened
	Weight  float64 `json:"weight"`
	Zone    string  `json:"zone,omitempty"`
	Max     int     `json:"max,omitempty"`
	Leaving bool    `json:"leaving,omitempty"`
	// Awaits is how many partitions of a member that leaves this one waits for at a
	// time, without asking. 0: it asks.
	Awaits int `json:"awaits,omitempty"`
}

func (m member) vacant() bool { return m.Session == "" }

// active reports whether the member should have partitions.
func (m member) active() bool { return !m.vacant() && !m.Leaving }

// membership is the coordinator's record: the members of the group, and the revision of
// the partitions. All workers compute the same plan from it.
type membership struct {
	Format   int      `json:"format"`
	Epoch    uint64   `json:"epoch"`
	Revision uint64   `json:"revision"` // of the spec
	Members  []member `json:"members"`  // by their places
}

// rollFormat is the version of the membership's form, and of the plan that is made of
// it. A worker that does not know it makes no plan.
const membershipFormat = 1

// maxOwnerShown is how much of an owner name the membership has room for.
const maxOwnerShown = 64

// shownOwner returns an owner name as the membership has it.
func shownOwner(owner string) string {
	if len(owner) > maxOwnerShown {
		return string([]rune(owner)[:maxOwnerShown/4])
	}
	return owner
}

func (r membership) bytes() []byte {
	data := mustMarshal(r)
	if len(data) <= maxDataLen {
		return data
	}
	for i := range r.Members {
		r.Members[i].Owner = "" // for people alone
	}
	return mustMarshal(r)
}

func parseMembership(data []byte) (r membership, ok bool, err error) {
	if len(data) == 0 {
		return membership{}, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if d.Decode(&r) != nil || d.More() || r.Format != membershipFormat || r.Epoch == 0 ||
		!slices.IsSortedFunc(r.Members, func(a, b member) int { return a.Place - b.Place }) {
		return membership{}, false, fmt.Errorf("%w: the membership is %.60q", tenure.ErrUnreadable, data)
	}
	return r, true, nil
}

// sessions returns the sessions of all members.
func (r membership) sessions() map[string]member {
	all := make(map[string]member, len(r.Members))
	for _, m := range r.Members {
		if !m.vacant() {
			all[m.Session] = m
		}
	}
	return all
}

// same says that the same plan follows from both, and that the same sessions are
// in it.
func (r membership) same(t membership) bool {
	return r.Revision == t.Revision && slices.Equal(r.Members, t.Members)
}

// plan makes the plan, with the help of a former one, which may be nil.
func (r membership) plan(ids, base []string, zones map[string]string, former *plan.Plan) *plan.Plan {
	in := plan.Input{Partitions: ids, Base: base, Zones: zones, Members: make([]plan.Member, len(r.Members))}
	for i, m := range r.Members {
		in.Members[i] = plan.Member{Place: m.Place, Weight: m.Weight, Zone: m.Zone, Max: m.Max, Leaving: !m.active()}
	}
	if former == nil {
		return plan.Make(in)
	}
	return former.Remake(in)
}

// coordinatorState is the data of the coordinator's lock, which all workers read
// periodically.
type coordinatorState struct {
	Epoch  uint64 `json:"epoch"`  // of the membership
	Places int    `json:"places"` // how many places there are to be taken
}

// minPlaces is the least number of places. More come with members, so that a joining
// worker need not poll MaxMembers places.
const minPlaces = 16

func (o coordinatorState) bytes() []byte { return mustMarshal(o) }

func parseCoordinatorState(data []byte) coordinatorState {
	var o coordinatorState
	if json.Unmarshal(data, &o) != nil {
		o = coordinatorState{}
	}
	o.Places = min(max(o.Places, minPlaces), maxPlaces)
	return o
}

// maxPlaces is the greatest number of places. There are more than members, so that many
// workers that join at once find one.
const maxPlaces = MaxMembers + MaxMembers/8

func mustMarshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) //nolint:forbidigo // what this package writes can be marshalled
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
