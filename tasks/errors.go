// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"errors"
	"fmt"
	"os"
)

// Errors that a task may return.
var (
	// ErrStop is returned by a task to stop the group without an error: it has
	// done what the group is for. Run stops the other tasks, and returns nil.
	ErrStop = errors.New("the group was asked to stop")
)

// Causes of a task's context. Others are [*SignalError], [*Error] with the
// error of the task that failed, [*PanicError], the cause of Run's context, and
// for leading tasks those of [tenure.Lease.Context].
var (
	// ErrElected is the cause when a following task is stopped because this replica was
	// elected.
	ErrElected = errors.New("elected")

	// ErrLeaderChanged is the cause when the leader that [Followed.Each] runs its work for
	// no longer leads.
	ErrLeaderChanged = errors.New("leader changed")
)

// Errors of Run.
var (
	// ErrStopTimeout is returned when a task has not returned [Options.StopTimeout] after
	// its context ended. It may run on: end the process.
	ErrStopTimeout = errors.New("did not stop in time")

	// ErrGoexit is returned when a task called [runtime.Goexit] instead of returning.
	ErrGoexit = errors.New("called runtime.Goexit")
)

var (
	errDone  = errors.New("all tasks are done")
	errEnded = errors.New("the group has ended") // so that nothing is left of a context
)

// Error says which task an error came from.
type Error struct {
	// Task is the name of the task.
	Task string
	// Err is what it returned, or what was wrong with it.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("task %q: %v", e.Task, e.Err) }

// Unwrap returns what the task returned.
func (e *Error) Unwrap() error { return e.Err }

// SignalError is the cause of the contexts of a group that a signal stops. Run
// does not return it.
type SignalError struct {
	// Signal is the signal that came.
	Signal os.Signal
}

func (e *SignalError) Error() string { return fmt.Sprintf("signal: %v", e.Signal) }

// PanicError is what Run panics with when a task has panicked.
type PanicError struct {
	// Task is the name of the task.
	Task string
	// Value is what it panicked with, and Stack the task's stack then.
	Value any
	Stack []byte
	// Err is what Run would have returned, if other tasks failed too.
	Err error
}

func (e *PanicError) Error() string {
	text := fmt.Sprintf("task %q panicked: %v\n\n%s", e.Task, e.Value, e.Stack)
	if e.Err != nil {
		text += fmt.Sprintf("\nbesides: %v", e.Err)
	}
	return text
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
