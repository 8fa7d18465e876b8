// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// identityKey is the key of the record that names the store. What two hosts call one
// store may be two: the URLs differ in a letter, or mean two databases. Their identities
// differ then.
const identityKey = driver.OwnPrefix + "store"

// NoIdentity is shown for a store without an identity.
const NoIdentity = "none yet"

// Identity returns the identity of a store, and [NoIdentity] if it has none.
func Identity(ctx context.Context, s driver.Store) (string, error) {
	rec, err := s.Get(ctx, identityKey, driver.Strong)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return NoIdentity, nil
	case err != nil:
		return "", err
	}
	return rec.Owner, nil
}

// Identify gives a store an identity if it has none, and returns it. If several processes do
// so at once, the first one wins, and the identity stays. It costs one read, and one write
// in the life of a store.
func Identify(ctx context.Context, s driver.Store) (string, error) {
	id, err := Identity(ctx, s)
	if err != nil || id != NoIdentity {
		return id, err
	}
	now := time.Now()
	version := rand.Text()
	rec, _, err := s.Claim(ctx, driver.Record{
		Key: identityKey, Version: version, Beat: version, State: driver.Past, Owner: rand.Text()[:12],
		Since: now, Until: now, End: driver.EndReleased, Lease: time.Second,
	})
	var other *driver.ConflictError
	if errors.As(err, &other) && !other.Absent {
		return other.Current.Owner, nil
	}
	return rec.Owner, err
}
