// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/tenurelock/tenure"
)

// Guard lets writes through in the order of their tokens. [Gate] and [SQLGate]
// are guards. All methods may be called concurrently.
type Guard interface {
	// Do runs write if no higher token has passed at the resource, and returns
	// its error. While write runs, no other write to the resource is admitted:
	// otherwise a write could be compared, be paused, and take effect after a
	// newer one.
	//
	// It returns a [*StaleError] if a higher token has passed, an error that
	// matches [ErrNoToken] if token is 0, and the error of ctx if it ended
	// while another write held the resource. In these cases write was not run.
	//
	// Write must have taken effect, or have failed for good, when it returns.
	// Do must not be called from inside of it for the same resource.
	Do(ctx context.Context, resource string, token uint64, write func(context.Context) error) error
}

// Grant is what a writer needs to know of its lease. A [*tenure.Lease] is one.
type Grant interface {
	// Name returns the name of the lock.
	Name() string
	// Token returns the fencing token.
	Token() uint64
	// Check returns nil while the holder may act.
	Check() error
}

var _ Grant = (*tenure.Lease)(nil)

// Fixed returns a grant for a program that knows a lock and its token, but does not have
// the lease: a child process, a queue's consumer. Its Check is always nil, so that only
// the resource stops a late write.
func Fixed(lock string, token uint64) Grant { return fixed{lock, token} }

type fixed struct {
	lock  string
	token uint64
}

func (f fixed) Name() string  { return f.lock }
func (f fixed) Token() uint64 { return f.token }
func (fixed) Check() error    { return nil }

// Environment returns the grant that this process was started under by the
// command "tenure run" or "tenure lead", which end it when the lease ends. It
// reads TENURE_LOCK and TENURE_TOKEN. The error matches [ErrNoToken].
func Environment() (Grant, error) {
	lock, text := os.Getenv("TENURE_LOCK"), os.Getenv("TENURE_TOKEN")
	if lock == "" || text == "" {
		return nil, fmt.Errorf("fence: %w: TENURE_LOCK and TENURE_TOKEN are not set: start this command by `tenure run NAME -- COMMAND`", ErrNoToken)
	}
	token, err := parseToken(text)
	if err != nil {
		return nil, fmt.Errorf("fence: TENURE_TOKEN: %w", err)
	}
	return Fixed(lock, token), nil
}

// parseToken reads a token from the text that a header or a variable carries.
func parseToken(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, fmt.Errorf("%w: %.40q is not a whole number above 0 in decimal digits", ErrNoToken, text)
	}
	return token, nil
}

// refuser counts and reports refusals.
type refuser struct {
	count  atomic.Uint64
	notify func(*StaleError)
}

func (r *refuser) refuse(resource string, token, highest uint64) error {
	err := &StaleError{Resource: resource, Token: token, Highest: highest}
	r.count.Add(1)
	if r.notify != nil {
		r.notify(err)
	}
	return err
}
