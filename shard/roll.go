// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard/internal/plan"
)

// profile is what a worker says of itself, as the data of the lock of its place.
type profile struct {
	Weight  float64 `json:"weight"`
	Zone    string  `json:"zone,omitempty"`
	Max     int     `json:"max,omitempty"`
	Leaving bool    `json:"leaving,omitempty"`
	Awaits  int     `json:"awaits,omitempty"`
	Address string  `json:"address,omitempty"`
}

func (p profile) bytes() []byte { return mustMarshal(p) }

// parseProfile reads the data of a place. What a later version adds is taken no
// notice of.
func parseProfile(data []byte) (profile, bool) {
	var p profile
	if json.Unmarshal(data, &p) != nil || !(p.Weight >= minWeight && p.Weight <= maxWeight) || p.Max < 0 || p.Awaits < 0 {
		return profile{}, false
	}
	return p, len(p.Zone) <= maxZoneLen
}

// member is one place in the roll. A place without a session is vacant. It stays
// in the roll so that a worker that returns to it gets its partitions back.
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

// roll is what the coordinator writes: the membership of the group, and the
// revision of the partitions. All workers compute the same plan from it.
type roll struct {
	Format   int      `json:"format"`
	Epoch    uint64   `json:"epoch"`
	Revision uint64   `json:"revision"` // of the spec
	Members  []member `json:"members"`  // by their places
}

// rollFormat is the version of the roll's form, and of the plan that is made of
// it. A worker that does not know it makes no plan.
const rollFormat = 1

// maxOwnerShown is how much of an owner name the roll has room for.
const maxOwnerShown = 64

// shownOwner returns an owner name as the roll has it.
func shownOwner(owner string) string {
	if len(owner) > maxOwnerShown {
		return string([]rune(owner)[:maxOwnerShown/4])
	}
	return owner
}

func (r roll) bytes() []byte {
	data := mustMarshal(r)
	if len(data) <= maxDataLen {
		return data
	}
	for i := range r.Members {
		r.Members[i].Owner = "" // for people alone
	}
	return mustMarshal(r)
}

func parseRoll(data []byte) (r roll, ok bool, err error) {
	if len(data) == 0 {
		return roll{}, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if d.Decode(&r) != nil || d.More() || r.Format != rollFormat || r.Epoch == 0 ||
		!slices.IsSortedFunc(r.Members, func(a, b member) int { return a.Place - b.Place }) {
		return roll{}, false, fmt.Errorf("%w: the roll is %.60q", tenure.ErrUnreadable, data)
	}
	return r, true, nil
}

// find returns the member of a session.
func (r roll) find(session string) (member, bool) {
	for _, m := range r.Members {
		if m.Session == session {
			return m, session != ""
		}
	}
	return member{}, false
}

// sessions returns the sessions of all members.
func (r roll) sessions() map[string]member {
	all := make(map[string]member, len(r.Members))
	for _, m := range r.Members {
		if !m.vacant() {
			all[m.Session] = m
		}
	}
	return all
}

// places returns how many places have somebody in them.
func (r roll) places() int {
	n := 0
	for _, m := range r.Members {
		if !m.vacant() {
			n++
		}
	}
	return n
}

// same says that the same plan follows from both, and that the same sessions are
// in it.
func (r roll) same(t roll) bool {
	return r.Revision == t.Revision && slices.Equal(r.Members, t.Members)
}

// plan makes the plan, with the help of a former one, which may be nil.
func (r roll) plan(ids, base []string, zones map[string]string, former *plan.Plan) *plan.Plan {
	in := plan.Input{Partitions: ids, Base: base, Zones: zones, Members: make([]plan.Member, len(r.Members))}
	for i, m := range r.Members {
		in.Members[i] = plan.Member{Place: m.Place, Weight: m.Weight, Zone: m.Zone, Max: m.Max, Leaving: !m.active()}
	}
	if former == nil {
		return plan.Make(in)
	}
	return former.Remake(in)
}

// office is what the coordinator lays down beside its lock, and everybody reads
// again and again.
type office struct {
	Epoch  uint64 `json:"epoch"`  // of the roll
	Places int    `json:"places"` // how many places there are to be taken
}

// minPlaces is how many places there are at least. More come with members, so
// that a worker that joins need not poll all that there may ever be.
const minPlaces = 16

func (o office) bytes() []byte { return mustMarshal(o) }

func parseOffice(data []byte) office {
	var o office
	if json.Unmarshal(data, &o) != nil {
		o = office{}
	}
	o.Places = min(max(o.Places, minPlaces), maxPlaces)
	return o
}

// maxPlaces is how many places there are at most. There are more than members,
// so that many who join at once find one.
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
