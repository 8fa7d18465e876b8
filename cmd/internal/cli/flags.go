// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/memstore"
)

// storeFlags say where the locks are.
type storeFlags struct {
	Store *string `placeholder:"URL"`
}

// timingFlags are the durations of a lease. Nil is "not given".
type timingFlags struct {
	Lease     *time.Duration
	Heartbeat *time.Duration
	Refresh   *time.Duration
	Grace     *time.Duration
}

// leaseFlags are those of a holder.
type leaseFlags struct {
	timingFlags
	Owner   *string
	Label   string
	Contain bool
}

// outputFlags say what people, or programs, get to read.
type outputFlags struct {
	JSON    bool `name:"json"`
	Quiet   bool `short:"q" xor:"loudness"`
	Verbose bool `short:"v" xor:"loudness"`
}

// options returns the client's options.
func (f *leaseFlags) options() (tenure.Options, error) {
	o, err := f.timingFlags.options()
	if err != nil {
		return o, err
	}
	o.Label = f.Label
	if f.Owner != nil {
		if o.Owner = *f.Owner; o.Owner == "" {
			return o, usage("--owner is empty: name this holder, or leave the flag out")
		}
	}
	return o, nil
}

// options returns the client's options. An option of zero means its default to
// the client, so what was given as zero is refused here.
func (f *timingFlags) options() (tenure.Options, error) {
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
			return o, usage("%s %v must be positive", part.flag, *part.from)
		default:
			*part.to = *part.from
		}
	}
	return o, nil
}

// check returns an error if a client would refuse the options, or one of the
// names. It asks a client on an empty store in memory, so that a mistake is
// found before a real store is touched, by the rules that hold there.
func check(o tenure.Options, names ...string) error {
	client, err := tenure.New(memstore.New(), &o)
	if err != nil {
		return usage("%w", err)
	}
	ctx := context.Background()
	defer func() { _ = client.Close(ctx) }() // it holds nothing
	for _, name := range names {
		if _, err := client.Status(ctx, name); err != nil {
			if named := (*tenure.Error)(nil); errors.As(err, &named) {
				err = named.Err // the name itself may be of any length
			}
			return usage("%w", err)
		}
	}
	return nil
}

// checkTaken is check for a name that is to be taken, for which there are stricter
// rules than for one that is looked at.
func checkTaken(o tenure.Options, name string) error {
	if err := check(o, name); err != nil {
		return err
	}
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		_, err := client.TryAcquire(ctx, name, nil)
		return err
	})
}

// refused returns an error if a client would refuse to do what ask asks of it. It
// is given up before it begins, on an empty store.
func refused(o tenure.Options, ask func(context.Context, *tenure.Client) error) error {
	client, err := tenure.New(memstore.New(), &o)
	if err != nil {
		return usage("%w", err)
	}
	defer func() { _ = client.Close(context.Background()) }() // it holds nothing
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = ask(ctx, client)
	if named := (*tenure.Error)(nil); errors.As(err, &named) && !errors.Is(err, context.Canceled) {
		return usage("%w", named.Err)
	}
	return nil
}

// location returns where the locks are, and says so if nobody else has. It is
// said with --quiet, too: a command that excludes nobody does all else as it
// should. Without a terminal nobody reads it: cron, a unit, a pipeline or a
// container would go on beside others in a file of its own, so there the store has
// to be named.
func (f *storeFlags) location(c *console, env func(string) string) (storeurl.Location, error) {
	url, named := env("TENURE_STORE"), true
	switch {
	case f.Store != nil:
		url = *f.Store
	case url == "" && !c.attended:
		return storeurl.Location{}, usage("no store is named, and there is no terminal to say on which one would be used: write --store URL, or TENURE_STORE=URL: " +
			"dynamodb://TABLE?region=REGION for several machines, sqlite:PATH for one, default: for the file of this user")
	case url == "":
		url, named = "default:", false
	}
	l, err := storeurl.Parse(url)
	if err != nil {
		return l, usage("%w", err)
	}
	if l.Preset() {
		if err := storeurl.MakeFolder(l); err != nil {
			return l, storeFailed(fmt.Errorf("default store %s: %w; name one with --store or TENURE_STORE", l.Shown(), err))
		}
	}
	if !named {
		c.warn("no store is named (--store, TENURE_STORE): using %s", l.Shown())
	}
	return l, nil
}
