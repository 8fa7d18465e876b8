// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

func TestMemstore(t *testing.T) {
	s := memstore.New()
	o := &Options{Rounds: 30}
	if testing.Short() {
		o.Rounds = 5
	}
	Check(t, func(*testing.T) driver.Store { return s.Open() }, o)
}

// Each bug must make some round impossible to explain; if none did, the check
// would not be worth much.
func TestBrokenStoresAreFound(t *testing.T) {
	for name, breakStore := range map[string]func(*memstore.Store) driver.Store{
		"stale reads":            func(s *memstore.Store) driver.Store { return &staleReads{Store: s} },
		"stale conflicts":        func(s *memstore.Store) driver.Store { return &staleConflicts{Store: s} },
		"lost updates":           func(s *memstore.Store) driver.Store { return lostUpdates{s} },
		"swap ignores token":     func(s *memstore.Store) driver.Store { return ignoresToken{s} },
		"claim overwrites held":  func(s *memstore.Store) driver.Store { return overwritesHeld{s} },
		"applied said to be not": func(s *memstore.Store) driver.Store { return &liar{Store: s} },
		"requests forced":        func(s *memstore.Store) driver.Store { return forcesRequests{s} },
		"claims reserved":        func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Reserved} },
		"claims past":            func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Past} },
		"claims closed":          func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Closed} },
		"claims alive":           func(s *memstore.Store) driver.Store { return claimsMore{s, driver.Alive} },
		"keeps the session":      func(s *memstore.Store) driver.Store { return keepsSession{s} },
		"forgets who asked":      func(s *memstore.Store) driver.Store { return forgetsAsked{s} },
		"writes twice":           func(s *memstore.Store) driver.Store { return retries{s} },
	} {
		t.Run(name, func(t *testing.T) {
			const most = 50
			s := memstore.New()
			open := func(*testing.T) driver.Store { return breakStore(s.Open()) }
			o := (&Options{Ops: 120}).withDefaults()
			for round := range most {
				result, _ := record(t, open, o, round).check(checkTimeout)
				switch result {
				case porcupine.Illegal:
					t.Logf("found in round %d", round)
					return
				case porcupine.Unknown:
					t.Logf("round %d is undecided", round)
				}
			}
			t.Errorf("%d rounds were explained", most)
		})
	}
}
