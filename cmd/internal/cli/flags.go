// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

type storeFlags struct {
	Store *string `placeholder:"URL"`
}

type timingFlags = flags.Timing

// leaseFlags are those of a holder.
type leaseFlags struct {
	timingFlags
	bellFlags

	Owner   *string `empty:"name this holder, or leave the flag out"`
	Label   string
	Contain bool

	progress time.Duration // how long the command may show none, 0: for ever
}

// outputFlags say what people, or programs, get to read.
type outputFlags struct {
	JSON    bool `name:"json"`
	Quiet   bool `short:"q" xor:"loudness"`
	Verbose bool `short:"v" xor:"loudness"`
}

// readerFlags are those of a command that shows what is in a store, or asks a holder.
type readerFlags struct {
	storeFlags
	JSON  bool `name:"json"`
	Quiet bool `short:"q"`
}

// checkFlags returns an error if a flag that was given breaks a rule of its tags: what its number
// "must", and what to write where it is "empty".
func checkFlags(all []*kong.Flag) error {
	for _, flag := range all {
		value := flag.Target
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue // it was not given
			}
			value = value.Elem()
		}
		switch must := flag.Tag.Get("must"); {
		case must == "be a period":
			if err := checkPeriod("--"+flag.Name, time.Duration(value.Int())); err != nil {
				return err
			}
		case must == "be positive" && value.Int() <= 0, must == "not be negative" && value.Int() < 0:
			return usage("--%s %v must %s", flag.Name, value.Interface(), must)
		case flag.Tag.Has("empty") && value.String() == "":
			return usage("--%s is empty: %s", flag.Name, flag.Tag.Get("empty"))
		}
	}
	return nil
}

// valueOf returns what a pointer flag says, the zero value if it was not given.
func valueOf[T any](given *T) (value T) {
	if given != nil {
		value = *given
	}
	return value
}

// options returns the client's options, for the store that a flag or the environment names.
func (f *leaseFlags) options(on storeFlags) (tenure.Options, error) {
	o, err := f.Options(on.Store)
	if err != nil {
		return o, err
	}
	o.Owner, o.Label, o.ProgressTimeout = valueOf(f.Owner), f.Label, f.progress
	return o, nil
}

// check returns an error if a client would refuse the options, or one of the
// names. It asks a client on an empty store in memory, so that a mistake is
// found before a real store is touched, by the rules that hold there.
func check(o tenure.Options, names ...string) error {
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		for _, name := range names {
			if _, err := client.Status(ctx, name); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
		}
		return nil
	})
}

// checkTaken is check for a name that is to be taken, for which there are stricter
// rules than for one that is looked at.
func checkTaken(o tenure.Options, name string) error {
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
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	if named := (*tenure.Error)(nil); errors.As(err, &named) {
		err = named.Err // the name itself may be of any length
	}
	return usage("%w", err)
}

// location returns where the locks are, and says so if nobody else has. It is
// said with --quiet, too: a command that excludes nobody does all else as it
// should.
func (f *storeFlags) location(c *console) (storeurl.Location, error) {
	l, named, err := flags.Locate(f.Store, c.attended)
	if err == nil && !named {
		c.warn("no store is named (--store, TENURE_STORE): using %s", l.Shown())
	}
	return l, err
}

// storeClient is a store, and a client on it that holds nothing, for a command that looks or
// asks. A signal ends its context.
type storeClient struct {
	ctx    context.Context //nolint:containedctx // it is one command, which a signal ends
	at     storeurl.Location
	store  driver.Store
	client *tenure.Client
	close  func()
}

// client opens the store, which must be there. Options, and the plan for a bell, may be nil;
// with a plan there must be options.
func (f *storeFlags) client(c *console, options *tenure.Options, plan *bellPlan) (*storeClient, error) {
	at, err := f.location(c)
	if err == nil {
		err = mustExist(at)
	}
	if err != nil {
		return nil, err
	}
	return clientAt(c, at, options, plan)
}

// reader is client for a command that shows what is there. It is nil if nothing can be in the
// file of this user, since there is none yet; one that was named must be there. Who watches
// waits for it.
func (f *storeFlags) reader(c *console, watches bool) (*storeClient, error) {
	at, err := f.location(c)
	if err != nil {
		return nil, err
	}
	switch err := mustExist(at); {
	case err == nil, watches && at.Preset():
		return clientAt(c, at, nil, nil)
	case at.Preset():
		return nil, nil //nolint:nilnil // there is nothing to be read
	default:
		return nil, err
	}
}

func clientAt(c *console, at storeurl.Location, options *tenure.Options, plan *bellPlan) (*storeClient, error) {
	store, client, shut, err := openStore(c, at, options, plan)
	if err != nil {
		return nil, err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	return &storeClient{ctx, at, store, client, func() {
		_ = client.Close(context.WithoutCancel(ctx)) // it holds nothing
		shut()
		stop()
	}}, nil
}

// openStore opens a store, with a client on it, which is closed before the store is. The
// console and the options are needed for a bell alone.
func openStore(c *console, at storeurl.Location, options *tenure.Options, plan *bellPlan) (
	store driver.Store, client *tenure.Client, shut func(), err error,
) {
	if store, err = at.Open(); err != nil {
		return nil, nil, nil, storeFailed(err)
	}
	closeBell := plan.open(c, at, options)
	shut = func() {
		closeBell()
		_ = store.Close() // every write was confirmed, or told of
	}
	if client, err = tenure.New(store, options); err != nil {
		shut()
		return nil, nil, nil, usage("%w", err)
	}
	return store, client, shut, nil
}
