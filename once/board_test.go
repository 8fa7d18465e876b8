// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The rules of the ledgers under schedules of a lock that is no more than a record: the
// steps are those of spec/Once.tla and spec/Every.tla, the rules those of ledger.go and
// age.go. A mistake takes one rule away, and must be found.

// mistake is a rule that is left out, or replaced.
type mistake string

// board is a lock, and the writes that are on their way to it.
type board struct {
	random *rand.Rand
	record struct {
		held           bool
		token, version uint64
		data           []byte
	}
	net   []*write
	seats []*seat
	wrote func(data []byte) // is called with what a write has made of the data
	found error
}

// seat is a host, as the lock sees it.
type seat struct {
	life  int // its acquires and writes: an answer to an earlier one is none
	good  bool
	token uint64
	got   bool
	data  []byte // of the record, when it was granted
	yes   bool   // the write under way was carried out
}

type write struct {
	by             *seat
	life           int
	claim, take    bool
	frees          bool
	version, token uint64 // of the record that a swap replaces
	data           []byte // nil: as they are
}

func newBoard(seed uint64, hosts int) *board {
	b := &board{random: rand.New(rand.NewPCG(seed, 13)), wrote: func([]byte) {}}
	for range hosts {
		b.seats = append(b.seats, &seat{})
	}
	return b
}

func (b *board) chance(n int) bool { return b.random.IntN(n) == 0 }

func (b *board) fail(format string, args ...any) {
	if b.found == nil {
		b.found = fmt.Errorf(format, args...)
	}
}

// standing says that the lease of the record is good: nobody else is let in.
func (b *board) standing() bool {
	return slices.ContainsFunc(b.seats, func(s *seat) bool { return s.good && s.token == b.record.token })
}

func (b *board) mine(s *seat) bool { return b.record.held && b.record.token == s.token }

// begin begins another request: the answers to those before it do not count.
func (s *seat) begin() { s.life, s.yes = s.life+1, false }

func (s *seat) leave() { *s = seat{life: s.life + 1} }

func (b *board) send(w write) {
	w.life, w.version, w.token = w.by.life, b.record.version, b.record.token
	if b.net = append(b.net, &w); len(b.net) > 8 {
		b.net = slices.Delete(b.net, 0, 1)
	}
}

// acquire sends a claim, or a takeover from a holder that is dead.
func (b *board) acquire(s *seat, data []byte) {
	switch {
	case !b.record.held:
		b.send(write{by: s, claim: true, data: data})
	case !b.standing():
		b.send(write{by: s, take: true})
	}
}

// deliver carries one of the writes out, now or once more, or loses it.
func (b *board) deliver() {
	if len(b.net) == 0 {
		return
	}
	i := b.random.IntN(len(b.net))
	w := b.net[i]
	if !b.chance(3) {
		b.net = slices.Delete(b.net, i, i+1)
	}
	r := &b.record
	fits := r.held && r.version == w.version && r.token == w.token
	if w.claim {
		fits = !r.held
	}
	if b.chance(6) || !fits {
		return
	}
	r.version++
	if w.claim || w.take {
		r.held, r.token = true, r.token+1
	}
	if w.frees {
		r.held = false
	}
	if w.data != nil {
		r.data = w.data
	}
	b.wrote(r.data)
	switch s := w.by; {
	case w.life != s.life:
	case w.claim || w.take:
		s.got, s.good, s.token, s.data = true, true, r.token, r.data
		s.life++ // its copies count no more
	default:
		s.yes = true
	}
}

// found runs a schedule for each seed until one finds something, and returns how many
// it took, 0 if none did.
func found(seeds uint64, schedule func(seed uint64) error) (uint64, error) {
	for seed := range seeds {
		if err := schedule(seed); err != nil {
			return seed + 1, err
		}
	}
	return 0, nil
}

// findsAll checks that no schedule of the seeds finds anything, and that each mistake is
// found within them.
func findsAll(t *testing.T, seeds uint64, schedule func(seed uint64, m mistake) error, mistakes ...mistake) {
	t.Helper()
	if n, err := found(seeds, func(seed uint64) error { return schedule(seed, "") }); err != nil {
		t.Fatalf("seed %d: %v", n-1, err)
	}
	for _, m := range mistakes {
		n, err := found(seeds, func(seed uint64) error { return schedule(seed, m) })
		if err == nil {
			t.Errorf("%s: not found in %d schedules", m, seeds)
			continue
		}
		t.Logf("%s: found by schedule %d: %v", m, n, err)
	}
}
