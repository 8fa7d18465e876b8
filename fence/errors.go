// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"fmt"
)

var (
	// ErrStale is matched by the error that is returned when a higher token has
	// passed before: another holder has begun. Nothing was written. Stop the
	// work; do not retry with this token, which can never pass again. See
	// [StaleError].
	ErrStale = errors.New("stale token")

	// ErrNoToken is matched when there is no token to compare: it is zero,
	// missing, or cannot be read. Nothing was written. The text says where it
	// was expected and how to pass it.
	ErrNoToken = errors.New("no fencing token")

	// ErrWrongLock is matched when a request was made under another lock than
	// the lock of its resource. Nothing was written.
	ErrWrongLock = errors.New("wrong lock")

	// ErrFull is matched when a gate knows its maximum of resources. The
	// resource was unknown, and nothing was written. Forget resources that are
	// no longer written, or raise [GateOptions.MaxResources].
	ErrFull = errors.New("gate is full")
)

// StaleError is the refusal of a guard. It matches [ErrStale].
type StaleError struct {
	// Resource is the resource of the refused write.
	Resource string
	// Token is the refused token.
	Token uint64
	// Highest is the highest token that had passed before.
	Highest uint64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence %q: token %d is stale, token %d has passed: another holder has begun, stop",
		shown(e.Resource), e.Token, e.Highest)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// maxResourceLen is the longest name of a resource in bytes: as long as the
// longest name of a lock.
const maxResourceLen = 1024

// check returns an error if a guard cannot compare token at resource.
func check(resource string, token uint64) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	if token == 0 {
		return fmt.Errorf("fence %q: %w: token is 0: pass Lease.Token(), which is never 0", shown(resource), ErrNoToken)
	}
	return nil
}

func checkResource(resource string) error {
	switch {
	case resource == "":
		return errors.New("fence: resource is empty: it must have a name, such as the name of its lock")
	case len(resource) > maxResourceLen:
		return fmt.Errorf("fence %q: resource has %d bytes: at most %d are allowed", shown(resource), len(resource), maxResourceLen)
	}
	return nil
}

// shown returns as much of a name as an error shows.
func shown(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}
