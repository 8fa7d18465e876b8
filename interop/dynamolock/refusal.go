// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"

	"cirello.io/dynamolock/v2"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

// kindOf is the kind of what a command's call returned.
func kindOf(command string, err error) string {
	var (
		timeout    *dynamolock.TimeoutError
		notGranted *dynamolock.LockNotGrantedError
	)
	switch {
	case errors.Is(err, errUnsupported):
		return wire.Unsupported
	case errors.Is(err, errReleased):
		return wire.Lost
	case errors.As(err, &timeout):
		return wire.Timeout
	case errors.As(err, &notGranted) && command == wire.Acquire:
		return wire.Held
	case errors.As(err, &notGranted):
		return wire.Lost
	default:
		return wire.Other
	}
}

func refusal(kind string, err error) *wire.Answer {
	return &wire.Answer{Kind: kind, Class: fmt.Sprintf("%T", err), Message: err.Error()}
}
