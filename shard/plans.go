// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"crypto/sha256"
	"sync"
)

// Plans lets several workers of one process, such as a simulation, share the
// plans that they make of the same membership: see [Options.Plans]. The zero value is
// ready.
type Plans struct {
	mu   sync.Mutex
	last map[[sha256.Size]byte]*shared
	used []([sha256.Size]byte)
}

type shared struct {
	once sync.Once
	v    *view
}

// keptPlans is how many plans are kept.
const keptPlans = 8

func (p *Plans) view(r roll, s spec, former *view) *view {
	if p == nil {
		return newView(r, s, former)
	}
	key := sha256.Sum256(append(r.bytes(), s.bytes()...))
	p.mu.Lock()
	e := p.last[key]
	if e == nil {
		e = &shared{}
		if p.last == nil {
			p.last = map[[sha256.Size]byte]*shared{}
		}
		p.last[key] = e
		if p.used = append(p.used, key); len(p.used) > keptPlans {
			delete(p.last, p.used[0])
			p.used = p.used[1:]
		}
	}
	p.mu.Unlock()
	e.once.Do(func() { e.v = newView(r, s, former) })
	return e.v
}
