// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package world

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
