// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"fmt"

	"github.com/tenurelock/tenure"
)

var (
	// ErrRunning is returned by [Group.Run] when the group is run already. One
	// process is one worker: use another client for another one.
	ErrRunning = errors.New("the group is running already")

	// ErrNotRunning is returned by [Group.Leave] when the group is not run.
	ErrNotRunning = errors.New("the group is not running")

	// ErrLeftEarly is matched by the error of [Group.Run] when the worker left
	// before all of its partitions had been handed over, though others stay: they have
	// no room for them, or did not come for them in [Options.LeaveTimeout]. They are
	// free, and others find them. See [LeftEarlyError].
	ErrLeftEarly = errors.New("left before all partitions were handed over")
)

// LeftEarlyError tells how many partitions nobody had taken. It matches
// [ErrLeftEarly].
type LeftEarlyError struct{ Partitions int }

func (e *LeftEarlyError) Error() string {
	if e.Partitions == 1 {
		return "left before one partition was handed over"
	}
	return fmt.Sprintf("left before %d partitions were handed over", e.Partitions)
}

// Is reports whether target is [ErrLeftEarly].
func (e *LeftEarlyError) Is(target error) bool { return target == ErrLeftEarly }

// Panic is what [Group.Run] panics with when a handler did: the panic of one
// goroutine is handed on in another one, after the worker has given up its
// partitions.
type Panic struct {
	// Value is what the handler panicked with, and Stack where.
	Value any
	Stack []byte
	// Partition is what it worked on.
	Partition string
}

func (p *Panic) String() string {
	return fmt.Sprintf("handler of partition %q: %v\n\n%s", p.Partition, p.Value, p.Stack)
}

// Error is as String.
func (p *Panic) Error() string { return p.String() }

// Unwrap returns the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &tenure.Error{Op: op, Key: name, Err: err}
}
