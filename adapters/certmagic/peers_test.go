// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurecertmagic_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
)

// What other storages of certmagic do with their locks. certmagic's own FileStorage is run;
// that of DynamoDB is a model, because its module wants an engine.

// dynamo is the lock of certmagic-storage-dynamodb (storage.go), as its source says: read the
// item, wait while it is there and is not past its time, and write it, without a condition.
type dynamo struct {
	certmagic.Storage
	items *items
	clock func() time.Time
}

type items struct {
	mu      sync.Mutex
	expires map[string]time.Time
}

// trip is the time of a request.
const trip = 20 * time.Millisecond

func (d *dynamo) Lock(ctx context.Context, name string) error {
	for {
		time.Sleep(trip)
		d.items.mu.Lock()
		until, ok := d.items.expires[name]
		d.items.mu.Unlock()
		if !ok || d.clock().After(until) {
			break
		}
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	time.Sleep(trip)
	d.items.mu.Lock()
	defer d.items.mu.Unlock()
	d.items.expires[name] = d.clock().Add(5 * time.Minute)
	return nil
}

func (d *dynamo) Unlock(_ context.Context, name string) error {
	d.items.mu.Lock()
	defer d.items.mu.Unlock()
	delete(d.items.expires, name)
	return nil
}

// TestAtTheSameTime: a lock that reads and then writes without a condition lets in all who
// read before the first write.
func TestAtTheSameTime(t *testing.T) {
	table := &items{expires: make(map[string]time.Time)}
	for name, how := range map[string]storages{
		"ours":   ours,
		"dynamo": func(_ *host, inner certmagic.Storage) certmagic.Storage { return &dynamo{inner, table, time.Now} },
		"no-ops": func(_ *host, inner certmagic.Storage) certmagic.Storage { return unlocked{inner} },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, "abc", 10*time.Second, how)
			time.Sleep(faulty) // the disk is in order
			var all sync.WaitGroup
			for _, h := range s.hosts {
				all.Go(func() {
					if err := h.obtain(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if ended, beside := s.count(); (ended != 1 || beside) != (name != "ours") {
				t.Errorf("%s: %d certificates; beside each other: %v", name, ended, beside)
			}
		})
	}
}

// TestLongOrder: a lock that expires and is not renewed lets a second host in beside an order
// that takes longer.
func TestLongOrder(t *testing.T) {
	for name, how := range map[string]func() storages{
		"ours": func() storages { return ours },
		"dynamo": func() storages {
			table := &items{expires: make(map[string]time.Time)}
			return func(_ *host, inner certmagic.Storage) certmagic.Storage { return &dynamo{inner, table, time.Now} }
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, "ab", 8*time.Minute, how())
			time.Sleep(faulty)
			var all sync.WaitGroup
			for i, h := range s.hosts {
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Second)
					if err := h.obtain(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if ended, beside := s.count(); (ended != 1 || beside) != (name == "dynamo") {
				t.Errorf("%s: %d certificates; beside each other: %v", name, ended, beside)
			}
		})
	}
}

// lockFile is what FileStorage writes.
type lockFile struct {
	Created, Updated time.Time
}

func fileOf(path string) string { return filepath.Join(path, "locks", lock+".lock") }

// TestClockBehind: a FileStorage takes the lock of a living host whose clock is behind by more
// than ten seconds for a dead one's.
func TestClockBehind(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Dir(fileOf(path)), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		// The other host, as its FileStorage writes the file each five seconds.
		ctx, end := context.WithCancel(t.Context())
		alive := make(chan struct{})
		write := func() {
			now := time.Now().Add(-11 * time.Second)
			text, err := json.Marshal(lockFile{now, now})
			if err == nil {
				err = os.WriteFile(fileOf(path), text, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		write()
		go func() {
			defer close(alive)
			for {
				select {
				case <-time.After(5 * time.Second):
					write()
				case <-ctx.Done():
					return
				}
			}
		}()
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := (&certmagic.FileStorage{Path: path}).Lock(soon, lock); err != nil {
			t.Errorf("FileStorage compares no clocks any more: %v", err)
		}
		end()
		<-alive
		if err := os.Remove(fileOf(path)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the goroutine that keeps the file fresh finds that it has gone
	})
	synctest.Test(t, func(t *testing.T) {
		// Ours compares elapsed times, each host's with its own.
		s := newStage(t, "ab", 0, ours)
		if err := s.hosts[0].ours.Lock(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.hosts[1].ours.Lock(soon, lock); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestTruncatedFile: a FileStorage whose file was cut short, as a full disk leaves it, stops
// renewing it without a word; a second host takes it; then the first host's Unlock removes
// that of the second one, and a third comes in beside it.
func TestTruncatedFile(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &certmagic.FileStorage{Path: path}, &certmagic.FileStorage{Path: path}, &certmagic.FileStorage{Path: path}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.Lock(soon, lock); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fileOf(path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.Lock(soon, lock); err != nil {
			t.Errorf("a second host waits for the first one: %v", err)
		}
		if err := a.Unlock(soon, lock); err != nil {
			t.Errorf("the first host's Unlock is refused: %v", err)
		}
		if ok, err := c.TryLock(soon, lock); !ok || err != nil {
			t.Errorf("a third host is kept out by the second one: %v, %v", ok, err)
		}
		if err := c.Unlock(soon, lock); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
	// Ours: TestLateUnlock has the same three hosts.
}
