// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package flags is what the command lines of tenure and tenured have in common: the flags
// for a store and for the durations of a lease, how values are read, and what an error
// means for the exit status.
package flags

import (
	"context"
	"os"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/memstore"
)

// Timing are the durations of a lease. Nil is "not given".
type Timing struct {
	Lease     *time.Duration
	Heartbeat *time.Duration
	Refresh   *time.Duration
	Grace     *time.Duration
}

// In a bucket each request is paid for, and takes tens of milliseconds.
const (
	bucketLease   = time.Minute
	bucketRefresh = 5 * time.Second
	leastInLease  = 5 // refresh periods in a lease
)

// Options returns the client's options, for a store that a flag names or, if it is nil, the
// environment. An option of zero means its default to the client, so what was given as zero
// is refused here.
func (f *Timing) Options(store *string) (tenure.Options, error) {
	var o tenure.Options
	for _, part := range []struct {
		flag string
		from *time.Duration
		to   *time.Duration
	}{
		{"--lease", f.Lease, &o.LeaseDuration},
		{"--heartbeat", f.Heartbeat, &o.HeartbeatPeriod},
		{"--refresh", f.Refresh, &o.RefreshPeriod},
		{"--grace", f.Grace, &o.Grace},
	} {
		switch {
		case part.from == nil:
		case *part.from <= 0:
			return o, Usage("%s %v must be positive", part.flag, *part.from)
		default:
			*part.to = *part.from
		}
	}
	url := os.Getenv("TENURE_STORE")
	if store != nil {
		url = *store
	}
	if storeurl.IsBucket(url) {
		if o.LeaseDuration == 0 {
			o.LeaseDuration = bucketLease
		}
		if o.RefreshPeriod == 0 {
			o.RefreshPeriod = min(bucketRefresh, o.LeaseDuration/leastInLease)
		}
	}
	return o, nil
}

// Given says that one of them was given.
func (f *Timing) Given() bool {
	return f.Lease != nil || f.Heartbeat != nil || f.Refresh != nil || f.Grace != nil
}

// WithDefaults returns the options as a client fills them in, or the error of the
// command line that a client would refuse.
func WithDefaults(o tenure.Options) (tenure.Options, error) {
	client, err := tenure.New(memstore.New(), &o)
	if err != nil {
		return o, Usage("%w", err)
	}
	defer func() { _ = client.Close(context.Background()) }() // it holds nothing
	return client.Options(), nil
}
