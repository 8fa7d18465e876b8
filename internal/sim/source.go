// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "math/rand/v2"

// Source makes the choices of a run.
type Source interface {
	// Intn returns a number in [0, n).
	Intn(n int) int
}

// Seed returns the source of a numbered run.
func Seed(n uint64) Source { return &seeded{rand.New(rand.NewPCG(n, 0x7e4e))} }

type seeded struct{ r *rand.Rand }

func (s *seeded) Intn(n int) int { return s.r.IntN(n) }

// Tape is a source that remembers its choices, and plays them again. Choices
// beyond its end come from the source behind it, or are 0, the mildest.
type Tape struct {
	Choices []int
	at      int
	behind  Source
}

// Record returns an empty tape that notes what src chooses.
func Record(src Source) *Tape { return &Tape{behind: src} }

// Play returns a tape with choices on it.
func Play(choices []int) *Tape { return &Tape{Choices: choices} }

// Intn returns the next choice, brought into [0, n).
func (t *Tape) Intn(n int) int {
	if t.at < len(t.Choices) {
		v := t.Choices[t.at]
		t.at++
		return min(v, n-1)
	}
	v := 0
	if t.behind != nil {
		v = t.behind.Intn(n)
		t.Choices = append(t.Choices, v)
	}
	t.at++
	return v
}
