// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package guard

import (
	"fmt"
	"os"
	"syscall"
)

var errSystem = fmt.Errorf("%w: running a command under a lock needs process groups; "+
	"use the library, or a Unix system", ErrUnsupported)

// Guard is a command under guard. This system does not support it.
type Guard struct{}

// Start returns an error that matches [ErrUnsupported].
func Start(Command, Limits) (*Guard, error) { return nil, errSystem }

// Supported returns an error that matches [ErrUnsupported].
func Supported() error { return errSystem }

// Transient reports whether an error of [Start] is likely to pass by itself.
func Transient(error) bool { return false }

// Extend does nothing.
func (*Guard) Extend(Limits) {}

// Stop does nothing.
func (*Guard) Stop(Instant) {}

// Signal does nothing.
func (*Guard) Signal(os.Signal) {}

// Signals returns the signals that a caller may catch.
func Signals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// Wait returns at once.
func (*Guard) Wait() Exit { return Exit{Code: -1} }

func (*Command) find() (string, error) { return "", errSystem }
