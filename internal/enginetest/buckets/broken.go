// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package buckets

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// BrokenServers tests that a server that does not keep the conditions of writes is refused, in
// a sentence that names its fault, and that nothing is left there.
func BrokenServers[S comparable](t *testing.T, start func(testing.TB) *enginetest.Bucket, open func(*testing.T, *enginetest.Bucket) (S, error)) {
	var none S
	for fault, says := range map[enginetest.BucketFault]string{
		enginetest.IgnoresConditions: "the server wrote over an object that it was to create only if absent",
		enginetest.CreatesOnMatch:    "the server created an object that it was to replace only under a certain ",
		enginetest.KeepsTag:          "the server gave an object the same ",
	} {
		t.Run(string(fault), func(t *testing.T) {
			b := start(t)
			b.Break(fault, nil)
			s, err := open(t, b)
			if s != none || !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%v", err)
			}
			if left := b.Names(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// Race tests a race on a sound server, and on one that decides first and writes later.
func Race(t *testing.T, b *enginetest.Bucket, race func() error) {
	if err := race(); err != nil {
		t.Errorf("a sound server: %v", err)
	}
	b.Break(enginetest.Races, nil)
	if err := race(); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "the server let ") {
		t.Errorf("a server that races: %v", err)
	}
	if left := b.Names(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// RunsAgain tests that a lock is taken and released on a store, three times.
func RunsAgain(t *testing.T, s driver.Store) {
	t.Helper()
	client, err := tenure.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context()) //nolint:errcheck // the runs say what is wrong
	for range 3 {
		if err := client.Run(t.Context(), "lock", nil, func(_ context.Context, lease *tenure.Lease) error { return lease.Check() }); err != nil {
			t.Fatal(err)
		}
	}
}

// Direct is an HTTP client that asks a server without a network: time stands still meanwhile.
type Direct struct{ http.Handler }

// Do implements what the SDKs have for a client.
func (d Direct) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// RoundTrip is Do for a client of package net/http.
func (d Direct) RoundTrip(r *http.Request) (*http.Response, error) { return d.Do(r) }

// ServerFails tests, in virtual time, a server that answers 500 to writes that it has applied,
// to each one, or to some. No lease ends by that, and no two processes hold the lock.
func ServerFails(t *testing.T, b *enginetest.Bucket, open func(*testing.T) driver.Store) {
	for name, fails := range map[string]func() bool{
		"each": nil,
		"half": func() bool { return rand.IntN(2) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b.Break("", nil)
				var ledger enginetest.Ledger
				clients := make([]*tenure.Client, 3)
				for i := range clients {
					var err error
					if clients[i], err = tenure.New(open(t), nil); err != nil {
						t.Fatal(err)
					}
				}
				b.Break(enginetest.Fails500, fails)
				const terms = 3
				done := make(chan error, len(clients))
				for _, client := range clients {
					go func() { done <- holdInTerms(t, client, "lock-"+name, terms, &ledger) }()
				}
				for range clients {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if ledger.Count() != terms*len(clients) {
					t.Errorf("%d tenures", ledger.Count())
				}
			})
		})
	}
}

// holdInTerms holds a lock for a minute, several times.
func holdInTerms(t *testing.T, client *tenure.Client, lock string, terms int, ledger *enginetest.Ledger) error {
	for range terms {
		err := client.Run(t.Context(), lock, nil, func(_ context.Context, lease *tenure.Lease) error {
			ledger.Enter(t, lease)
			for range 60 {
				if err := lease.Check(); err != nil {
					t.Errorf("the lease of token %d has ended: %v", lease.Token(), err)
					return err
				}
				time.Sleep(time.Second) //nolint:forbidigo // virtual time
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return client.Close(t.Context())
}
