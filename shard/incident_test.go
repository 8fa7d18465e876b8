// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

var errDenied = errors.New("denied")

// What a store calls permanent is an incident for workers that it has answered
// before: they are there again when it has passed, also where it outlasts their
// sessions.
func TestIncidentEndsNoWorker(t *testing.T) {
	for _, lasting := range []time.Duration{refresh, lease / 2, 4 * lease} {
		onWorld(t, shard.Options{Partitions: 12}, func(t *testing.T, s *world) {
			a, b := s.worker("a"), s.worker("b")
			s.settle(2, 12)
			denied := faultstore.Fault{Effect: faultstore.Refused, Err: driver.Permanent(errDenied)}
			for _, w := range []*worker{a, b} {
				remove := w.client.Faults().Inject(faultstore.Rule{Fault: denied})
				time.AfterFunc(lasting, remove)
			}
			time.Sleep(lasting)
			for _, w := range []*worker{a, b} {
				testutil.Pending(t, w.owner, w.done)
			}
			s.settle(2, 12)
		})
	}
}

// A worker whose store is of no use from the start is told at once.
func TestWrongStoreFromTheStart(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 12}, func(t *testing.T, s *world) {
		w := s.make("a")
		w.client.Faults().Inject(faultstore.Rule{Fault: faultstore.Fault{Effect: faultstore.Refused, Err: driver.Permanent(errDenied)}})
		w.start(w.handle)
		synctest.Wait()
		select {
		case <-w.done:
			testutil.Want(t, w.err, tenure.ErrPermanent)
			testutil.Want(t, w.err, errDenied)
		default:
			t.Error("it runs on")
		}
	})
}

// A store that others do not find any more ends a worker, instead of having it open
// sessions there for ever.
func TestReplacedStoreEndsAWorker(t *testing.T) {
	onWorld(t, shard.Options{Partitions: 12}, func(t *testing.T, s *world) {
		w := s.worker("a")
		s.settle(1, 12)
		w.client.Faults().Inject(faultstore.Rule{Fault: faultstore.Fault{Effect: faultstore.Refused, Err: driver.Replaced(errDenied)}})
		time.Sleep(beat)
		synctest.Wait()
		select {
		case <-w.done:
			testutil.Want(t, w.err, tenure.ErrReplaced)
		default:
			t.Error("it runs on")
		}
	})
}
