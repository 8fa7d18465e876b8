// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

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

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestBrokenServers: a server that does not keep the conditions of writes is refused, in a
// sentence that names its fault, and nothing is left there.
func TestBrokenServers(t *testing.T) {
	for fault, says := range map[enginetest.BucketFault]string{
		enginetest.IgnoresConditions: "the server wrote over an object that it was to create only if absent",
		enginetest.CreatesOnMatch:    "the server created an object that it was to replace only under a certain ETag",
		enginetest.KeepsTag:          "the server gave an object the same ETag after its content had changed",
	} {
		t.Run(string(fault), func(t *testing.T) {
			b := enginetest.NewBucket(t)
			b.Break(fault, nil)
			s, err := Open(t.Context(), siteAt(b.URL).client(t), b.Name, nil)
			if s != nil || !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%v", err)
			}
			if left := b.Names(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestRace: a server that decides first and writes later passes the trial of one process. The
// race of 16 finds it.
func TestRace(t *testing.T) {
	b := enginetest.NewBucket(t)
	s := siteAt(b.URL)
	clients := []*s3.Client{s.client(t), s.client(t)}
	if err := Race(t.Context(), clients, b.Name, nil); err != nil {
		t.Errorf("a sound server: %v", err)
	}
	b.Break(enginetest.Races, nil)
	s.open(t, "")
	err := Race(t.Context(), clients, b.Name, nil)
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "the server let ") {
		t.Errorf("a server that races: %v", err)
	}
	if left := b.Names(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := Race(t.Context(), []*s3.Client{newSite(t).client(t)}, "locks", nil); err != nil {
		t.Errorf("gofakes3: %v", err)
	}
}

func TestVersitygwRace(t *testing.T) {
	gateways := enginetest.StartVersitygw(t, 2, "locks")
	one, other := siteAt(gateways[0].URL).client(t), siteAt(gateways[1].URL).client(t)
	for _, ways := range [][]*s3.Client{{one}, {one, other}} {
		if err := Race(t.Context(), ways, "locks", nil); err != nil {
			t.Errorf("%d gateways: %v", len(ways), err)
		}
	}
}

// TestBusyServer: one that says to each second write that another one is under way works.
func TestBusyServer(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.BusyEachSecond, nil)
	s := siteAt(b.URL).open(t, "")
	client, err := tenure.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	for range 3 {
		if err := client.Run(t.Context(), "lock", nil, func(_ context.Context, lease *tenure.Lease) error { return lease.Check() }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoConditionalDelete: a server that refuses a deletion under If-Match works, and a lock
// that is deleted leaves its token.
func TestNoConditionalDelete(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.NoConditionalDelete, nil)
	s := siteAt(b.URL).open(t, "")
	if left := b.Names(); !s.KeepsTokens() || len(left) > 0 {
		t.Errorf("it keeps tokens: %t; left: %q", s.KeepsTokens(), left)
	}
	rec := enginetest.Claim(t, s, held("lock"))
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if now := enginetest.Claim(t, s, held("lock")); now.Token != rec.Token+1 {
		t.Errorf("token %d after a deletion, want %d", now.Token, rec.Token+1)
	}
}

// direct is an HTTP client that asks a server without a network: time stands still meanwhile.
type direct struct{ http.Handler }

func (d direct) Do(r *http.Request) (*http.Response, error) {
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

// directTo returns a store that asks a server so.
func directTo(t *testing.T, b *enginetest.Bucket) *Store {
	t.Helper()
	url := "http://bucket.test"
	s, err := Open(t.Context(), s3.New(s3.Options{
		BaseEndpoint: &url, Region: enginetest.S3Region, UsePathStyle: true, HTTPClient: direct{b},
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	}), b.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServerFails: a server answers 500 to writes that it has applied, to each one, or to
// some. No lease ends by that, and no two processes hold the lock.
func TestServerFails(t *testing.T) {
	b := enginetest.NewBucket(t)
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
					if clients[i], err = tenure.New(directTo(t, b), nil); err != nil {
						t.Fatal(err)
					}
				}
				b.Break(enginetest.Fails500, fails)
				const terms = 3
				done := make(chan error, len(clients))
				for _, client := range clients {
					go func() {
						done <- func() error {
							for range terms {
								err := client.Run(t.Context(), "lock-"+name, nil, func(ctx context.Context, lease *tenure.Lease) error {
									ledger.Enter(t, lease)
									for range 60 {
										if err := lease.Check(); err != nil {
											t.Errorf("the lease of token %d has ended: %v", lease.Token(), err)
											return err
										}
										time.Sleep(time.Second)
									}
									return nil
								})
								if err != nil {
									return err
								}
							}
							return client.Close(t.Context())
						}()
					}()
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
