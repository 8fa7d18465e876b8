// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// failed returns the error of a request without an answer, marked with what is certain.
func (s *Store) failed(err error) error {
	if code := wire.Code(0); errors.As(err, &code) {
		err = refusal(code)
	}
	out := fmt.Errorf("zookeeper: %w", err)
	if errors.Is(err, wire.ErrClosed) || s.life.Ended() {
		out = fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	}
	if errors.Is(err, wire.ErrNotSent) {
		return driver.NotApplied(out)
	}
	return out
}

// refused returns the error of a request that the server has answered by a code.
func (s *Store) refused(code wire.Code) error { return refusal(code) }

func refusal(code wire.Code) error {
	switch code {
	case wire.NoAuth:
		return driver.NotApplied(driver.Permanent(fmt.Errorf("the nodes of the store belong to another user: name the user that created them, and the password: %w", code)))
	case wire.InvalidACL:
		return driver.NotApplied(driver.Permanent(fmt.Errorf("the server knows no users: leave user and password out, or see its authProviders: %w", code)))
	case wire.AuthFailed:
		return driver.NotApplied(driver.Permanent(fmt.Errorf("the server does not accept the user: %w", code)))
	case wire.Quota: // servers look before they write; an operator may set another quota
		return driver.NotApplied(fmt.Errorf("a quota of the root, or of a node above it, is used up: set a higher one (setquota), or remove old locks by \"tenure sweep\": %w", code))
	case wire.Throttled:
		return driver.NotApplied(driver.Throttled(code))
	case wire.SessionMoved, wire.NoNode, wire.NodeExists, wire.BadVersion, wire.NotEmpty:
		return driver.NotApplied(code)
	}
	return code // what it has done is not known
}
