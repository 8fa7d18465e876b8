// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// errMissed says that a record is not in the state that a write names.
var errMissed = errors.New("the record has changed meanwhile")

// Claim writes next if its key is absent or released. Without knowledge of the key it
// takes it for absent.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return s.writer.Claim(ctx, next)
}

// Swap replaces prev by next if the stored version and token are those of prev.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.writer.Swap(ctx, prev, next)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.writer.Raise(ctx, prev, next)
}

// Delete removes the record of prev's key if its version and token are those of prev.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	return s.writer.Delete(ctx, prev)
}

// refuse returns an error if next is a session that lives, or a lock under one, where
// electors of client-go see it.
func (s *Store) refuse(next driver.Record) error {
	if !s.options.SharedLease || next.Session == "" && next.State != driver.Alive {
		return nil
	}
	return driver.Unsupported(fmt.Errorf("write of %q: the names of locks are shared with electors of client-go (SharedLease), "+
		"which take a lock whose own Lease is not renewed; take it without a session, or keep locks under sessions in a store without SharedLease", next.Key))
}

// guard returns an error if a write must not replace what another client has written.
func (s *Store) guard(is *state, do versioned.Step) error {
	switch {
	case !is.foreign:
	case do.Remove:
		return driver.Unsupported(fmt.Errorf("deletion of %q: another client has written Lease %s/%s, and the token would be lost with it; use kubectl", do.Record.Key, s.namespace, s.object(do.Record.Key)))
	case !s.shared(do.Record.Key):
		return driver.Unsupported(fmt.Errorf("write of %q: another client has written Lease %s/%s, which is not shared with Tenure: stop that client, and delete the Lease, or set SharedLease",
			do.Record.Key, s.namespace, s.object(do.Record.Key)))
	}
	return nil
}

// write makes a step, and reads the current state if the API server has refused it because of
// that.
func (s *Store) write(ctx context.Context, key string, was state, do versioned.Step) (is state, missed bool, err error) {
	if err := s.guard(&was, do); err != nil {
		return is, false, err
	}
	bound, done := s.life.Bound(ctx)
	is, err = s.apply(bound, &was, do)
	done()
	if err == errMissed { //nolint:errorlint // ours
		is, err = s.read(ctx, key, driver.Strong)
		return is, true, err
	}
	return is, false, err
}

// apply takes a step, in one request that the API server makes depend on the state, and
// in more before and after it if there are parts.
func (s *Store) apply(ctx context.Context, is *state, do versioned.Step) (state, error) {
	name := s.object(do.Record.Key)
	if do.Remove {
		var old []string
		if is.parts != (parts{}) {
			old = append(s.partsOf(ctx, do.Record.Key), is.parts.names()...)
		}
		if err := s.calls.remove(ctx, leases, s.namespace, name, is.rev); err != nil {
			return state{}, s.missed(is, err)
		}
		s.dropParts(ctx, parts{}, old...)
		return state{}, nil
	}
	text, apart, written, old, err := s.lay(ctx, is, do.Record)
	if err != nil {
		return state{}, driver.NotApplied(err) // nothing names what it may have written
	}
	// The wall clock is only for people: see specOf.
	change, becomes := s.encode(is, do.Record, text, apart, do.Wakes, time.Now())
	var o v1.Lease
	if is.found() {
		err = s.calls.patch(ctx, leases, s.namespace, name, change, &o)
	} else {
		err = s.calls.create(ctx, leases, s.namespace, change, &o)
	}
	if err != nil {
		if err = s.missed(is, err); err == errMissed || errors.Is(err, driver.ErrNotApplied) { //nolint:errorlint // ours
			s.dropParts(ctx, parts{}, written.names()...)
		}
		return state{}, err
	}
	s.dropParts(ctx, apart, old...)
	becomes.rev = o.ResourceVersion
	return becomes, nil
}

// missed returns errMissed if the API server has said that the Lease is in another state,
// and otherwise the error, marked with what is certain.
func (s *Store) missed(is *state, err error) error {
	if mismatch(err) || is.found() && apierrors.IsNotFound(err) {
		return errMissed
	}
	return s.failed(err)
}
