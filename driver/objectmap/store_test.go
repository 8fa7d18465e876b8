// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/internal/enginetest"
)

var serial int

func held(key string) driver.Record {
	serial++
	version := fmt.Sprint("version-", serial)
	return driver.Record{Key: key, Version: version, Beat: version, Owner: "o", Lease: time.Second, State: driver.Held}
}

func beat(rec driver.Record) driver.Record {
	next := held(rec.Key)
	next.Token, next.State = rec.Token, rec.State
	return next
}

func released(rec driver.Record) driver.Record {
	next := beat(rec)
	next.State, next.End = driver.Released, driver.EndReleased
	return next
}

func TestRequests(t *testing.T) {
	b := newBucket("")
	s, other := open(t, b), open(t, b)
	ctx := t.Context()
	costs := func(what, want string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := b.requests(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	costs("trial", "1 GET 5 PUT 2 DELETE", s.Try(ctx))
	costs("trial of another handle", "1 GET 5 PUT 2 DELETE", other.Try(ctx))
	costs("second trial", "", s.Try(ctx))
	rec, _, err := s.Claim(ctx, held("lock"))
	costs("claim of an absent lock", "1 GET 1 PUT", err)
	rec, err = s.Swap(ctx, rec, beat(rec))
	costs("heartbeat", "1 PUT", err)
	_, _, err = other.Claim(ctx, held("lock"))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != rec.Version {
		t.Errorf("claim of a held lock: %v", err)
	}
	costs("claim of a held lock", "1 GET", nil)
	rec, err = s.Swap(ctx, rec, released(rec))
	costs("release", "1 PUT", err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released here", "1 PUT", err)
	former := rec
	rec, err = other.Swap(ctx, rec, beat(rec))
	costs("write of what another handle has written", "1 GET 1 PUT", err)
	_, err = s.Swap(ctx, former, beat(former))
	if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Version != rec.Version {
		t.Errorf("heartbeat that conflicts: %v", err)
	}
	costs("heartbeat that conflicts", "1 GET 1 PUT", nil)
	rec, err = other.Swap(ctx, rec, released(rec))
	costs("release", "1 PUT", err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was released elsewhere", "1 GET 1 PUT", err)
	_, err = s.Get(ctx, "lock", driver.Strong)
	costs("look", "1 GET", err)
	costs("deletion", "1 DELETE", s.Delete(ctx, rec))
	session := held(driver.SessionKey("one"))
	session.State = driver.Alive
	_, _, err = s.Claim(ctx, session)
	costs("opening of a session", "1 PUT", err)
	_, err = s.List(ctx, "", "")
	costs("list of one record", "1 GET 2 LIST", err)
}

// TestUnknownOutcome: after a write of unknown outcome a call sends nothing more, and the next
// one reads first.
func TestUnknownOutcome(t *testing.T) {
	b := newBucket("")
	s := open(t, b)
	rec, _, err := s.Claim(t.Context(), held("lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []string{"loses requests", "loses replies"} {
		b.requests()
		b.fault = fault
		next := beat(rec)
		if _, err := s.Swap(t.Context(), rec, next); !errors.Is(err, errLost) || errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("%s: %v", fault, err)
		}
		b.fault = ""
		if got := b.requests(); got != "1 PUT" {
			t.Errorf("%s: it took %s", fault, got)
		}
		if fault == "loses replies" {
			rec = next
		}
		if rec, err = s.Swap(t.Context(), rec, beat(rec)); err != nil {
			t.Errorf("the next heartbeat after a bucket that %s: %v", fault, err)
		}
		if got := b.requests(); got != "1 GET 1 PUT" {
			t.Errorf("the next heartbeat after a bucket that %s took %s", fault, got)
		}
	}
}

// TestTrial: a server that does not keep the conditions is refused, in a sentence, before
// anything is written. It stays refused without more requests.
func TestTrial(t *testing.T) {
	for fault, says := range map[string]string{
		"ignores conditions":  "overwrote an object that it was to create only if absent",
		"creates on If-Match": "created an object that it was to replace",
		"keeps the tag":       "the same tag after its content had changed",
	} {
		t.Run(fault, func(t *testing.T) {
			b := newBucket(fault)
			s := open(t, b)
			for range 2 {
				_, _, err := s.Claim(t.Context(), held("lock"))
				if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), says) {
					t.Errorf("claim: %v", err)
				}
			}
			if len(b.bodies) > 0 {
				t.Errorf("left: %v", b.bodies)
			}
			b.requests()
			if err := s.Try(t.Context()); err == nil || b.requests() != "" {
				t.Errorf("third time: %v", err)
			}
		})
	}
}

// TestTrialAgain: an engine that could not be tried is tried again.
func TestTrialAgain(t *testing.T) {
	b := newBucket("")
	s := open(t, b)
	resume := b.hang()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Try(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("trial of an engine that hangs: %v", err)
	}
	resume()
	if err := s.Try(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSameTags: the tag of a body comes back with the body, and admits no late write.
func TestSameTags(t *testing.T) {
	b := newBucket("")
	s, other := open(t, b), open(t, b)
	first, _, err := s.Claim(t.Context(), held("lock"))
	if err != nil {
		t.Fatal(err)
	}
	// The same except for the version, written by another process.
	second := first
	second.Version = "another"
	if _, err := other.Swap(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Swap(t.Context(), first, beat(first)); err == nil {
		t.Errorf("a late heartbeat was applied: %+v", got)
	}
}

// TestDeletedLock: where the engine deletes without a condition, a lock leaves its token.
func TestDeletedLock(t *testing.T) {
	b := newBucket("")
	b.plainDelete = true
	s := open(t, b)
	rec, _, err := s.Claim(t.Context(), held("lock"))
	if err != nil {
		t.Fatal(err)
	}
	if rec, err = s.Swap(t.Context(), rec, released(rec)); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if got := b.bodies[s.ObjectName("lock")]; got != `{"deleted":{"key":"lock","version":"`+rec.Version+`","token":1}}` {
		t.Errorf("it has left %s", got)
	}
	b.bodies[s.ObjectName("damaged")] = `{"deleted":{"key":"damaged","version":"v"}}`
	if _, err := s.Get(t.Context(), "damaged", driver.Strong); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("without a token: %v", err)
	}
	if rec, _, err = open(t, b).Claim(t.Context(), held("lock")); err != nil || rec.Token != 2 {
		t.Errorf("the next claim: token %d, %v", rec.Token, err)
	}
}

// TestNames: characters that a file system or a bucket cannot store are escaped, no
// object has the name of a folder, and a name that is too long is a hash.
func TestNames(t *testing.T) {
	b := newBucket("")
	s := open(t, b)
	long := strings.Repeat("ü", driver.MaxKeyLen/2)
	for key, want := range map[string]string{
		"reports-1.2_x":                 "tenure/r/reports-1.2_x",
		"x/y":                           "tenure/r/x%2Fy",
		"x//y":                          "tenure/r/x%2F%2Fy",
		".":                             "tenure/r/%2E",
		"..":                            "tenure/r/%2E.",
		"/x":                            "tenure/r/%2Fx",
		"a~ü":                           "tenure/r/a%7E%C3%BC",
		strings.Repeat("k", 200):        "tenure/r/" + strings.Repeat("k", 200),
		strings.Repeat("k", 201):        "tenure/r/" + strings.Repeat("k", 200) + "~/k",
		strings.Repeat("k", 200) + ".":  "tenure/r/" + strings.Repeat("k", 200) + "~/%2E",
		strings.Repeat("k", 200) + "..": "tenure/r/" + strings.Repeat("k", 200) + "~/%2E.",
	} {
		if got := s.ObjectName(key); got != want {
			t.Errorf("%.20q is %q, want %q", key, got, want)
		}
	}
	if got := s.ObjectName(long); !strings.HasPrefix(got, "tenure/h/") || len(got) != len("tenure/h/")+64 {
		t.Errorf("a long key is %q", got)
	}
	keys := []string{long, "x", "x/y", "x//y", ".", "..", "/x", strings.Repeat("k", driver.MaxKeyLen), strings.Repeat("/", 290), strings.Repeat("/", 294)}
	folders := map[string]bool{}
	for _, key := range keys {
		if _, _, err := s.Claim(t.Context(), held(key)); err != nil {
			t.Errorf("%.20q: %v", key, err)
		}
		name := s.ObjectName(key)
		for i, c := range name {
			if c == '/' {
				folders[name[:i]] = true
			}
		}
		for _, part := range strings.Split(name, "/") {
			if len(name) > 1024 || len(part) > 255 {
				t.Errorf("%.20q: %d bytes, a part of %d", key, len(name), len(part))
			}
		}
	}
	for name := range b.bodies {
		if folders[name] {
			t.Errorf("%q is an object and a folder", name)
		}
	}
	var got []string
	for cursor := ""; ; {
		page, err := s.List(t.Context(), "", cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			got = append(got, rec.Key)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("listed %.10q, want %.10q", got, keys)
	}
}

// TestForeignObjects: objects of others below the prefix are reported, and do no harm.
func TestForeignObjects(t *testing.T) {
	b := newBucket("")
	s := open(t, b)
	mine, _, err := s.Claim(t.Context(), held("mine"))
	if err != nil {
		t.Fatal(err)
	}
	b.bodies["tenure/r/a b"] = "hello"
	b.bodies["tenure/h/copy"] = b.bodies[s.ObjectName("mine")]
	b.bodies["tenure/r/copy"] = b.bodies[s.ObjectName("mine")]
	page, err := s.List(t.Context(), "", "")
	if err != nil || len(page.Records) != 1 || page.Records[0].Version != mine.Version {
		t.Errorf("listed %v, %v", page.Records, err)
	}
	for _, key := range []string{"r/a b", "h/copy", "copy"} {
		if !errors.Is(page.Unreadable[key], driver.ErrUnreadable) {
			t.Errorf("%q: %v", key, page.Unreadable[key])
		}
	}
	if _, _, err := s.Claim(t.Context(), held("copy")); !errors.Is(err, driver.ErrUnreadable) {
		t.Errorf("claim of a key whose object is another's: %v", err)
	}
}

// TestNestedPrefixes: a prefix and those below it are stores that know nothing of each other.
func TestNestedPrefixes(t *testing.T) {
	b := newBucket("")
	stores := map[string]driver.Store{}
	for _, prefix := range []string{"a/", "a/b/", "a/probe/"} {
		s, err := objectmap.New(&handle{bucket: b}, &objectmap.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		stores[prefix] = s
	}
	enginetest.CheckNested(t, stores)
}

func TestOptions(t *testing.T) {
	for _, prefix := range []string{"locks", "/locks/", "a//b/", "../", "a/./b/", "a/.b/", "ü/", "a b/", "a/r/", "a/h/b/", strings.Repeat("x", 100) + "/", "/"} {
		if _, err := objectmap.New(&handle{bucket: newBucket("")}, &objectmap.Options{Prefix: prefix}); err == nil || !strings.Contains(err.Error(), "must end with a slash") {
			t.Errorf("prefix %.20q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"", "locks/", "team-1/locks_2/v1.2/"} {
		if _, err := objectmap.New(&handle{bucket: newBucket("")}, &objectmap.Options{Prefix: prefix}); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	if _, err := objectmap.New(&handle{bucket: newBucket("")}, &objectmap.Options{PageSize: -1}); err == nil {
		t.Error("a negative page size")
	}
}

// TestUnluckyRequests: requests and replies are lost, come late and twice, and are refused,
// for 20 minutes. No two processes hold a lock at once, and no token comes twice.
func TestUnluckyRequests(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("PlainDelete=%t", plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { unlucky(t, plain) })
		})
	}
}

func unlucky(t *testing.T, plain bool) {
	b := newBucket("")
	b.plainDelete = plain
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var holder *tenure.Lease
	var highest uint64
	var terms, ends int
	done := make(chan struct{})
	const workers = 4
	one := make(chan struct{}, 1) // guards what is above
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			s, err := objectmap.New(&handle{bucket: b, unlucky: true}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			client, err := tenure.New(s, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for ctx.Err() == nil {
				err := client.Run(ctx, "lock", nil, func(work context.Context, lease *tenure.Lease) error {
					one <- struct{}{}
					if lease.Check() == nil {
						if holder != nil && holder.Check() == nil {
							t.Errorf("%s holds the lock beside %s", lease.Owner(), holder.Owner())
						}
						if lease.Token() <= highest {
							t.Errorf("token %d after %d", lease.Token(), highest)
						}
						holder, highest = lease, max(highest, lease.Token())
						terms++
					}
					<-one
					select {
					case <-work.Done():
						one <- struct{}{}
						if ends++; ctx.Err() == nil {
							t.Logf("lost: %v", context.Cause(work))
						}
						<-one
					case <-time.After(7 * time.Second):
					}
					return nil
				})
				if errors.Is(err, driver.ErrPermanent) { // a trial that has bad luck for long does not
					t.Error(err)
				}
			}
			if err := client.Close(context.WithoutCancel(ctx)); err != nil {
				t.Logf("close: %v", err)
			}
		}()
	}
	for range workers {
		<-done
	}
	if terms < 40 {
		t.Errorf("only %d terms in 20 minutes", terms)
	}
	t.Logf("%d terms, %d ended early", terms, ends)
}

// TestDay: a day costs what the guide to object stores says, within 2 %. In addition to a read
// each refresh period there is a read for each heartbeat that a cheap read showed first.
func TestDay(t *testing.T) {
	enginetest.MakeVerify(t)
	for _, c := range []struct {
		lease, refresh time.Duration
		puts, gets     float64 // a month of 30 days; in dollars, the table there
		hours          int
	}{
		{15 * time.Second, time.Second, 864_000, 2_635_000, 1},
		{30 * time.Second, 2 * time.Second, 432_000, 1_317_000, 1},
		{60 * time.Second, 5 * time.Second, 216_000, 619_000, 24},
	} {
		t.Run(fmt.Sprintf("L=%v,R=%v", c.lease, c.refresh), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBucket("")
				clients := make([]*tenure.Client, 2)
				for i := range clients {
					var err error
					if clients[i], err = tenure.New(open(t, b), &tenure.Options{LeaseDuration: c.lease, RefreshPeriod: c.refresh}); err != nil {
						t.Fatal(err)
					}
				}
				lease, err := clients[0].Acquire(t.Context(), "lock", nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				given := make(chan error, 1)
				go func() {
					_, err := clients[1].Acquire(ctx, "lock", nil)
					given <- err
				}()
				synctest.Wait()
				b.requests()
				time.Sleep(time.Duration(c.hours) * time.Hour)
				b.mu.Lock()
				puts, gets := b.puts, b.gets
				b.mu.Unlock()
				cancel()
				if err := <-given; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				near := func(what string, n int, want float64) {
					const hours = 30 * 24
					if month := float64(n * hours / c.hours); math.Abs(month-want) > 0.02*want {
						t.Errorf("%.0f %s a month, want %.0f", month, what, want)
					}
				}
				near("PUT", puts, c.puts)
				near("GET", gets, c.gets)
				if err := errors.Join(lease.Release(t.Context()), clients[0].Close(t.Context()), clients[1].Close(t.Context())); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
