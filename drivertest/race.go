// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// racers is how many goroutines race, spread over the handles.
const racers = 4 * handles

func testRace(t *testing.T, e *env) {
	t.Run("Claim", func(t *testing.T) {
		for range max(e.h.Ops/(4*racers), 3) {
			key := e.key()
			e.oneWins(t, func(c *client) (driver.Record, error) {
				now, _, err := c.Claim(t.Context(), e.held(key))
				return now, err
			})
		}
	})

	t.Run("ClaimReleased", func(t *testing.T) {
		_, free := e.freed(t, e.clients[0])
		for range max(e.h.Ops/(4*racers), 3) {
			won := e.oneWins(t, func(c *client) (driver.Record, error) {
				now, _, err := c.Claim(t.Context(), e.held(free.Key))
				return now, err
			})
			if won.Token != free.Token+1 {
				t.Fatalf("token %d after %d", won.Token, free.Token)
			}
			free = e.swap(t, e.clients[0], won, e.released(won))
		}
	})

	// A deletion that comes after the claim leaves it alone.
	t.Run("Delete", func(t *testing.T) {
		for round := range max(e.h.Ops/(4*racers), 3) {
			_, free := e.freed(t, e.clients[0])
			var won driver.Record
			var err error
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range handles { // which of them runs first goes by their order, on an idle machine
				c, claims := e.clients[i], i == round%handles
				wg.Go(func() {
					<-start
					if claims {
						won, _, err = c.Claim(t.Context(), e.held(free.Key))
					} else if err := c.Delete(t.Context(), free); err != nil {
						asConflict(t, "Delete beside a claim", free.Key, err)
					}
				})
			}
			close(start)
			wg.Wait()
			if err != nil {
				t.Fatalf("Claim beside deletions: %v", err)
			}
			e.wantStored(t, won)
		}
	})

	t.Run("Counter", e.raceCounter)
	t.Run("Everything", e.raceEverything)
}

// oneWins has all racers try at once, and fails the test unless exactly one is
// granted and each other gets a conflict with the winner's record. It returns
// that record.
func (e *env) oneWins(t *testing.T, try func(c *client) (driver.Record, error)) driver.Record {
	t.Helper()
	var (
		records [racers]driver.Record
		errs    [racers]error
		start   = make(chan struct{})
		wg      sync.WaitGroup
	)
	for i := range racers {
		wg.Go(func() {
			<-start
			records[i], errs[i] = try(e.clients[i%len(e.clients)])
		})
	}
	close(start)
	wg.Wait()
	winner := -1
	for i, err := range errs {
		if err != nil {
			continue
		}
		if winner >= 0 {
			t.Fatalf("two won: %s and %s", brief(records[winner]), brief(records[i]))
		}
		winner = i
	}
	if winner < 0 {
		t.Fatalf("nobody won: %v", errors.Join(errs[:]...))
	}
	won := records[winner]
	for i, err := range errs {
		if i == winner {
			continue
		}
		if conflict := asConflict(t, "loser", won.Key, err); conflict != nil {
			e.wantEqual(t, "the loser's conflict", conflict.Current, won)
		}
	}
	e.wantStored(t, won)
	if t.Failed() {
		t.FailNow()
	}
	return won
}

// raceCounter counts in Data by compare-and-swap: no addition may get lost.
func (e *env) raceCounter(t *testing.T) {
	claim := e.held(e.key())
	claim.Data = make([]byte, 8)
	rec := e.claim(t, e.clients[0], claim)
	each := max(e.h.Ops/(4*racers), 3)
	var wg sync.WaitGroup
	for i := range racers {
		c := e.clients[i%len(e.clients)]
		wg.Go(func() {
			now := rec
			for added, tries := 0, 0; added < each; tries++ {
				if tries > racers*each { // each conflict shows an addition that this one had not seen
					t.Error("conflicts show again and again what they have shown before")
					return
				}
				data := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(now.Data)+1)
				swapped, err := c.Swap(t.Context(), now, e.withData(now, data))
				var conflict *driver.ConflictError
				switch {
				case err == nil:
					now = swapped
					added++
				case errors.As(err, &conflict) && len(conflict.Current.Data) == 8:
					now = conflict.Current
				default:
					t.Errorf("Swap: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	got := binary.BigEndian.Uint64(e.get(t, e.clients[0], rec.Key).Data)
	if want := uint64(racers * each); got != want {
		t.Errorf("%d additions of 1 gave %d", want, got)
	}
}
