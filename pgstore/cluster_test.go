// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// atLeast waits for more tenures.
func atLeast(t *testing.T, l *enginetest.Ledger, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d tenures", n), func(context.Context) error {
		if got := l.Count(); got < n {
			return fmt.Errorf("%d tenures", got)
		}
		return nil
	})
}

// work has six clients take a lock in turn until stop is called.
func work(t *testing.T, l *enginetest.Ledger, url string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 6 {
		client, err := tenure.New(mustOpen(t, url), &tenure.Options{Owner: fmt.Sprint("w", i), LeaseDuration: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		working.Go(func() {
			defer client.Close(context.WithoutCancel(ctx))
			for ctx.Err() == nil {
				lease, err := client.Acquire(ctx, "lock", &tenure.AcquireOptions{StoreTimeout: -1})
				if err != nil {
					continue
				}
				l.Enter(t, lease)                             // it works until the next one comes, or it releases the lock
				_ = lease.Release(context.WithoutCancel(ctx)) // it runs out otherwise
			}
		})
	}
	return func() {
		cancel()
		working.Wait()
	}
}

// TestStandbyPromotedUnderLoad kills a primary whose standby is synchronous, and promotes
// that. No write that was answered is lost.
func TestStandbyPromotedUnderLoad(t *testing.T) {
	primary := enginetest.StartPostgreSQL(t)
	schema, _ := Schema("")
	mustExec(t, primary.URL, schema)
	standby := primary.Standby()
	primary.Configure("synchronous_standby_names", standby.Name)
	both := through(t, primary.URL, primary.Addr+","+standby.Addr)
	var book enginetest.Ledger
	stop := work(t, &book, both)
	atLeast(t, &book, 20)
	primary.Kill()
	promoted := book.Count()
	standby.Promote()
	atLeast(t, &book, promoted+20)
	stop()
	t.Logf("%d tenures, %d before the promotion", book.Count(), promoted)
	rec, err := mustOpen(t, both).Get(t.Context(), "lock", driver.Strong)
	if err != nil || rec.Token < book.Highest() {
		t.Errorf("the record has token %d, %v; %d was given", rec.Token, err, book.Highest())
	}
}

// TestServerStopped: a server that hangs costs no lease more than its time, and goes on
// with the connections that it had.
func TestServerStopped(t *testing.T) {
	server := enginetest.StartPostgreSQL(t)
	schema, _ := Schema("")
	mustExec(t, server.URL, schema)
	var book enginetest.Ledger
	stop := work(t, &book, server.URL)
	for _, length := range []time.Duration{time.Second, 6 * time.Second} {
		atLeast(t, &book, book.Count()+5)
		server.Stop()
		<-time.After(length)
		server.Continue()
	}
	atLeast(t, &book, book.Count()+5)
	stop()
}
