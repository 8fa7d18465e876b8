// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Client is a library's open client. One that can look at a lock is a [Getter].
type Client interface {
	// Acquire takes the lock, and waits for it unless the request says not to.
	Acquire(context.Context, *wire.Request) (Lock, error)
	Close() error
}

// Lock is a lock in hand. One of which more is to be told is a [Describer], one
// whose heartbeat can be sent by hand a [Beater].
type Lock interface {
	// Check asks the library whether the lock is still this holder's.
	Check() bool
	// Notice is closed when the library says by itself that it is not, or soon
	// will not be. It may be nil.
	Notice() <-chan struct{}
	// Token returns the fencing token, if the library has one.
	Token() (uint64, bool)
	Release(*wire.Request) error
}

// What some libraries can do beside that.
type (
	// Getter looks at a lock.
	Getter interface {
		Get(*wire.Request) (wire.Lock, error)
	}
	// Describer says what its handle says of a lock.
	Describer interface{ Describe() wire.Lock }
	// Beater sends a heartbeat.
	Beater interface{ Heartbeat(*wire.Request) error }
)

// onDynamoDB opens a client with connections of its own, to where the request says.
func onDynamoDB(open func(*dynamodb.Client, *wire.Request) (Client, error)) func(*wire.Request) (Client, error) {
	return func(r *wire.Request) (Client, error) { return open(dynamo.ConnectIn(r.Region, r.Endpoint, nil), r) }
}

// Milliseconds is the time of a field that may be left out; zero, then.
func Milliseconds(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}

// refusal is an error of a library whose kind is known.
type refusal struct {
	error
	kind string
}

func (r *refusal) Unwrap() error { return r.error }

// Refuse returns the error as one of a kind, of those of package wire.
func Refuse(kind string, err error) error { return &refusal{err, kind} }

// kindOf is the kind of an error, Other if it has none, and the library's own error.
func kindOf(err error) (string, error) {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.kind, r.error
	}
	return wire.Other, err
}

// refused is the answer to a request that came to an error: it shows the library's
// own.
func refused(err error) wire.Answer {
	kind, err := kindOf(err)
	return wire.Answer{Kind: kind, Class: fmt.Sprintf("%T", err), Message: err.Error()}
}
