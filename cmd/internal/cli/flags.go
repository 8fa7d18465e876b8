// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/memstore"
)

// storeFlags say where the locks are.
type storeFlags struct {
	Store *string `placeholder:"URL"`
}

// leaseFlags are those of a holder. Nil is "not given".
type leaseFlags struct {
	Lease     *time.Duration
	Heartbeat *time.Duration
	Refresh   *time.Duration
	Grace     *time.Duration
	Owner     string
	Label     string
	Contain   bool
}

// outputFlags say what people, or programs, get to read.
type outputFlags struct {
	JSON    bool `name:"json"`
	Quiet   bool `short:"q" xor:"loudness"`
	Verbose bool `short:"v" xor:"loudness"`
}

var durationType = reflect.TypeFor[time.Duration]()

// decodeDuration reads a duration, a negative one included, so that whoever
// reads the message about it sees the rule that it breaks.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	token := ctx.Scan.Peek()
	text := token.String()
	if strings.HasPrefix(text, "--") || token.IsEOL() {
		return errors.New("a duration is missing: write a number with its unit, such as 15s, 500ms or 2m")
	}
	ctx.Scan.Pop()
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration: write a number with its unit, such as 15s, 500ms or 2m", text)
	}
	target.SetInt(int64(d))
	return nil
}

// options returns the client's options. An option of zero means its default to
// the client, so what was given as zero is refused here.
func (f *leaseFlags) options() (tenure.Options, error) {
	o := tenure.Options{Owner: f.Owner, Label: f.Label}
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

// location returns where the locks are, and says so if nobody else has.
func (f *storeFlags) location(c *console, env func(string) string) (storeurl.Location, error) {
	url := env("TENURE_STORE")
	switch {
	case f.Store != nil:
		url = *f.Store
	case url == "":
		l, err := storeurl.Default()
		if err != nil {
			return l, usage("%w", err)
		}
		if err := storeurl.MakeFolder(l); err != nil {
			return l, storeFailed(fmt.Errorf("default store %s: %w", l.URL(), err))
		}
		c.say("no store is named (--store, TENURE_STORE): using %s", l.URL())
		return l, nil
	}
	l, err := storeurl.Parse(url)
	if err != nil {
		return l, usage("%w", err)
	}
	return l, nil
}
