// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/server/internal/remote"
	"github.com/tenurelock/tenure/server/internal/wire"
	"github.com/tenurelock/tenure/tenuretest"
)

// The timing of a client with the defaults.
const (
	lease          = 15 * time.Second
	heartbeat      = lease / 5
	refresh        = time.Second
	requestTimeout = lease / 10
)

// world is one set of records, and the services on it.
type world struct {
	*tenuretest.World
	t *testing.T
}

// inWorld runs the test in a bubble, with a world.
func inWorld(t *testing.T, test func(t *testing.T, w world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, world{tenuretest.New(t), t}) })
}

// record returns the record of the lock as it stands.
func (w world) record(name string) driver.Record {
	w.t.Helper()
	rec, err := w.Store().Get(w.t.Context(), name, driver.Strong)
	must(w.t, err)
	return rec
}

// service is a client, and what carries out the calls of remote holders by it.
type service struct {
	*tenuretest.Client
	t      *testing.T
	remote *remote.Client
}

func (w world) service(name string, edit ...func(*tenure.Options)) *service {
	w.t.Helper()
	c := w.Client(name, edit...)
	return &service{c, w.t, remote.New(c.Client)}
}

// mustAcquire acquires the lock for the client itself.
func (s *service) mustAcquire(name string) *tenure.Lease {
	s.t.Helper()
	l, err := s.Acquire(s.t.Context(), name, nil)
	must(s.t, err)
	return l
}

// mustTry is mustAcquire for a lock that must be free.
func (s *service) mustTry(name string) *tenure.Lease {
	s.t.Helper()
	l, err := s.TryAcquire(s.t.Context(), name, nil)
	must(s.t, err)
	return l
}

// fault has the next calls of a kind fail; count 0: all of them.
func (s *service) fault(op faultstore.Op, count int, f faultstore.Fault) (remove func()) {
	return s.Faults().Inject(faultstore.Rule{Ops: []faultstore.Op{op}, Count: count, Fault: f})
}

// calls counts the calls of a service by their kinds while f runs, those of the history left
// out.
func (s *service) calls(f func()) string {
	s.Faults().ResetLog()
	f()
	var all []string
	for _, c := range s.Faults().Log() {
		if !strings.HasPrefix(c.Key, driver.OwnPrefix) && c.Op != faultstore.OpWatch && c.Op != faultstore.OpHint {
			all = append(all, string(c.Op))
		}
	}
	return strings.Join(all, " ")
}

// holder is a remote holder, in as much as a test needs of it: it makes its beats and
// remembers the last confirmed one.
type holder struct {
	t     *testing.T
	name  string
	owner string
	wire.Grant
	after string
}

func (s *service) holder(name, owner string) *holder {
	s.t.Helper()
	return s.granted(name, owner)(s.remote.Acquire(s.t.Context(), wire.AcquireRequest{Name: name, Owner: owner, Host: "h", Label: "v1"}, false, nil))
}

func (s *service) granted(name, owner string) func(wire.Grant, error) *holder {
	return func(g wire.Grant, err error) *holder {
		s.t.Helper()
		must(s.t, err)
		return &holder{t: s.t, name: name, owner: owner, Grant: g, after: g.Beat}
	}
}

func (h *holder) next() wire.HeartbeatRequest {
	term, _, _ := strings.Cut(h.after, "-")
	return wire.HeartbeatRequest{Name: h.name, Token: h.Token, After: h.after, Next: term + "-" + rand.Text()[:13]}
}

// beat renews through a service.
func (h *holder) beat(s *service) (wire.Renewal, error) {
	b := h.next()
	r, err := s.remote.Heartbeat(h.t.Context(), b)
	if err == nil {
		h.after = b.Next
	}
	return r, err
}

func (h *holder) mustBeat(s *service) wire.Renewal {
	h.t.Helper()
	r, err := h.beat(s)
	want(h.t, err, nil)
	return r
}

func (h *holder) release(s *service) error {
	return s.remote.Release(h.t.Context(), wire.ReleaseRequest{Name: h.name, Token: h.Token, After: h.after}, false)
}

// want fails the test if err does not match target; nil wants no error.
func want(t *testing.T, err, target error) {
	t.Helper()
	if target == nil && err != nil || target != nil && !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}

// must ends the test unless err is nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// started runs f in a goroutine and returns a channel with its error.
func started(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// pending fails the test if done has a value already.
func pending(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s returned already: %v", what, err)
	default:
	}
}
