// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"math/rand/v2"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testData(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]
	var every []byte
	for i := range 256 {
		every = append(every, byte(i))
	}
	large := make([]byte, driver.MaxDataLen)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	const kib = 1 << 10

	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"None", nil},
		{"Empty", []byte{}},
		{"EveryByte", every},
		{"Zeros", make([]byte, 16)},
		{"NotUTF8", []byte("\xff\xfe'\"\\")},
		// Whatever remembers records, or keeps long data apart, has a limit for that.
		{"Above1KiB", large[:kib+1]},
		{"Above4KiB", large[:4*kib+1]},
		{"Above64KiB", large[:64*kib+1]},
		{"Longest", large},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := e.held(e.key())
			claim.Data = tc.data
			rec := e.claim(t, a, claim)
			e.wantStored(t, driver.Claimed(claim, driver.Record{}, false))
			_, _, err := b.Claim(t.Context(), e.held(rec.Key))
			e.wantConflict(t, "Claim of the held key", err, rec)

			next := e.withData(rec, append([]byte("more"), tc.data[:min(len(tc.data), driver.MaxDataLen-4)]...))
			rec = e.swap(t, b, rec, next)
			e.wantStored(t, next)
			next = e.withData(rec, tc.data)
			rec = e.swap(t, a, rec, next)
			e.wantStored(t, next)

			// The handle that has released it may remember it, the other one has to read it.
			free := e.swap(t, a, rec, e.released(rec))
			for _, c := range []*client{a, a, b} {
				now := e.wantClaimed(t, c, e.held(rec.Key), free)
				free = e.swap(t, c, now, e.released(now))
			}
		})
	}

	// A swap brings its own data, and none if it brings none: also from a record that names
	// no more than what is compared, and so says nothing of the data that are stored.
	t.Run("SwapEmpties", func(t *testing.T) {
		for _, none := range [][]byte{nil, {}} {
			for _, named := range []bool{false, true} {
				claim := e.held(e.key())
				claim.Data = []byte("data")
				rec := e.claim(t, a, claim)
				next := e.withData(rec, none)
				if named {
					rec = driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}
				}
				e.swap(t, b, rec, next)
				e.wantStored(t, next)
			}
		}
	})
}
