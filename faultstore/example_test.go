// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/memstore"
)

// The tests of this file show a store with faults by itself. Package tenuretest has
// more for the tests of a program: see docs/guides/testing-your-service.md.

func TestWorkStopsWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := faultstore.New(memstore.New(), nil)
		defer faults.Close()
		client, err := tenure.New(faults.Driver(), &tenure.Options{Clock: tenure.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())

		var stopped time.Duration
		err = client.Run(t.Context(), "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
			faults.Inject(faultstore.Rule{Fault: faultstore.BlackHole()}) // no call is answered from here on
			began := time.Now()
			<-ctx.Done() // your work
			stopped = time.Since(began)
			return ctx.Err()
		})
		if !errors.Is(err, tenure.ErrLost) {
			t.Errorf("Run returned %v, want a lost lease", err)
		}
		if stopped > 15*time.Second {
			t.Errorf("the work was stopped after %v, too late for a lease of 15 s", stopped)
		}
	})
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := memstore.New() // one store for both replicas
		faults := faultstore.New(records, nil)
		defer faults.Close()
		first, err := tenure.New(faults.Driver(), &tenure.Options{Owner: "first", Clock: tenure.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close(t.Context())
		second, err := tenure.New(records, &tenure.Options{Owner: "second", Clock: tenure.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close(t.Context())

		before, err := first.Acquire(t.Context(), "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		faults.Inject(faultstore.Rule{Fault: faultstore.BlackHole()}) // the first one alone is cut off
		after, err := second.Acquire(t.Context(), "reports", nil)
		if err != nil {
			t.Fatal(err)
		}
		if before.Check() == nil {
			t.Error("the first replica may still act")
		}
		if after.Token() <= before.Token() {
			t.Errorf("token %d came after token %d", after.Token(), before.Token())
		}
	})
}
