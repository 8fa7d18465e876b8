// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

// scene is a lock on a file of its own, and the truth about its tenures: what
// its record was seen to be, by looking again and again, and by who wrote it.
type scene struct {
	t     *testing.T
	file  string
	store *sqlitestore.Store
	quit  chan struct{}
	over  chan struct{} // nobody looks any more

	mu      sync.Mutex
	truth   map[uint64]driver.Tenure // End is empty while it goes on
	granted map[uint64]grant         // as the children said
	tales   []driver.Tenure          // what records say of the tenures before their own
}

type grant struct {
	owner string
	known time.Time // it had the lock by then
}

func newScene(t *testing.T) (*scene, error) {
	s := &scene{
		t: t, file: filepath.Join(t.TempDir(), "locks.db"),
		truth: map[uint64]driver.Tenure{}, granted: map[uint64]grant{},
	}
	return s, s.open()
}

func (s *scene) open() (err error) {
	s.quit, s.over = make(chan struct{}), make(chan struct{})
	if s.store, err = sqlitestore.Open(s.file, nil); err != nil {
		close(s.over)
		return err
	}
	go func() {
		defer close(s.over)
		for {
			if rec, err := s.store.Get(s.t.Context(), lockName, driver.Strong); err == nil {
				s.saw(rec)
			}
			select {
			case <-s.quit:
				return
			case <-time.After(lease / 5):
			}
		}
	}()
	return nil
}

// close has nobody look any more, and the file at rest.
func (s *scene) close() error {
	close(s.quit)
	<-s.over
	return s.store.Close()
}

// branch returns a scene that goes on from where s, which is closed, has ended.
func (s *scene) branch() (*scene, error) {
	b := &scene{
		t: s.t, file: filepath.Join(s.t.TempDir(), "locks.db"),
		truth: maps.Clone(s.truth), granted: maps.Clone(s.granted), tales: slices.Clone(s.tales),
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(b.file+suffix, s.file+suffix); err != nil && (suffix == "" || !errors.Is(err, os.ErrNotExist)) {
			return nil, err
		}
	}
	return b, b.open()
}

func copyFile(to, from string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// saw takes what the record of the lock shows.
func (s *scene) saw(rec driver.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := rec.Prev // all that a reservation shows
	if rec.State != driver.Reserved {
		seen = rec.Tenure("")
		if rec.Prev != nil {
			s.told(*rec.Prev)
		}
	}
	if was, known := s.truth[seen.Token]; !known || was.End == "" {
		s.truth[seen.Token] = *seen
	}
}

// told notes what a record says of the tenure before its own.
func (s *scene) told(prev driver.Tenure) {
	if !slices.ContainsFunc(s.tales, func(t driver.Tenure) bool { return same(t, prev) }) {
		s.tales = append(s.tales, prev)
	}
}

// settle compares what the records say of the tenures before their own. By now
// all that was written is known.
func (s *scene) settle() error {
	var errs []error
	for _, prev := range s.tales {
		was, seen := s.truth[prev.Token]
		if !seen { // on a slow machine; its holder has told that it was there
			was = prev
			if g := s.granted[prev.Token]; g.owner != prev.Owner {
				errs = append(errs, fmt.Errorf("tenure %d was granted to nobody: %+v", prev.Token, prev))
			}
		}
		if was.End == "" {
			was.End = driver.EndExpired // it was never seen to end
		}
		s.truth[prev.Token] = was
		if !same(was, prev) {
			errs = append(errs, fmt.Errorf("the next record says of tenure %d: %+v; it was %+v", prev.Token, prev, was))
		}
	}
	return errors.Join(errs...)
}

func same(a, b driver.Tenure) bool {
	asked := (a.Asked == nil) == (b.Asked == nil) && (a.Asked == nil ||
		a.Asked.Kind == b.Asked.Kind && a.Asked.By == b.Asked.By && a.Asked.Reason == b.Asked.Reason && a.Asked.To == b.Asked.To)
	return a.Owner == b.Owner && a.Token == b.Token && a.Host == b.Host && a.Label == b.Label && a.End == b.End &&
		a.Since.Equal(b.Since) && a.Until.Equal(b.Until) && asked
}

// client returns a client of this process, whose writes are witnessed. Its
// lease is one that no noise of the machine ends.
func (s *scene) client(owner string, lease time.Duration) (*tenure.Client, error) {
	w := &witnessed{Store: s.store, Watcher: s.store}
	w.wrote = func(_, next driver.Record) { s.saw(next) }
	return tenure.New(w, &tenure.Options{LeaseDuration: lease, Owner: owner})
}

// ended is how a taker has ended.
type ended struct {
	calls int  // of its acquisition, if that was through
	held  bool // it knew that it had the lock
}

// take has a process take the lock, and die there.
func (s *scene) take(o order) (ended, error) {
	o.Child, o.File = "taker", s.file
	c, err := start(s.t, o)
	if err != nil {
		return ended{}, err
	}
	return s.taken(c, o)
}

// taken waits for the end of a taker, and notes what it knew.
func (s *scene) taken(c *child, o order) (e ended, err error) {
	lines, err := c.rest()
	if err != nil {
		return e, err
	}
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "calls":
			e.calls, _ = strconv.Atoi(words[1])
		case "unknown":
			return e, fmt.Errorf("%w: %q", errSlow, lines)
		case "granted":
			token, _ := strconv.ParseUint(words[1], 10, 64)
			at, _ := strconv.ParseInt(words[2], 10, 64)
			s.mu.Lock()
			s.granted[token] = grant{o.Owner, time.Unix(0, at)}
			s.mu.Unlock()
			if e.held {
				return e, fmt.Errorf("%w: %q", errSlow, lines)
			}
			e.held = true
		}
	}
	rec, err := s.store.Get(s.t.Context(), lockName, driver.Strong)
	if err == nil {
		s.saw(rec)
	}
	return e, err
}

// errSlow says that a taker was told of its grant only when that lease was
// over, and took the lock from itself. That is a tenure more than its crash
// accounts for. Or it says that a write was not answered in time, so that the
// taker knows nothing of its grant; or that a holder could not renew its lease.
var errSlow = errors.New("the machine is too slow")
