// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/fence"
)

// RoleName is the role of a process that is a replica; [Role] plays it.
const RoleName = "replica"

// Role is the replica that [Variable] describes.
func Role(in io.Reader, out io.Writer) error {
	r := &replica{out: proc.NewLines(out)}
	err := json.Unmarshal([]byte(os.Getenv(Variable)), &r.config)
	if err == nil {
		err = r.run(in)
	}
	if err != nil {
		r.say(Line{Kind: Trouble, Text: err.Error()})
	}
	return err
}

func (r *replica) run(in io.Reader) (err error) {
	if r.watch, err = NewWatch(); err != nil {
		return err
	}
	page, err := OpenPage(r.config.Page)
	if err != nil {
		return err
	}
	r.source = newShifted(page, r.config.Rate)
	r.held = r.choose()
	r.say(Line{Kind: Ready, RawBoot: proc.Clock(unix.CLOCK_BOOTTIME), RawMono: proc.Clock(unix.CLOCK_MONOTONIC), Clocks: r.look()})

	store, err := OpenStore(r.config.Store)
	if err != nil {
		return err
	}
	base := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http says so
	base.Proxy = nil
	r.http = &http.Client{Timeout: opTimeout, Transport: fence.NewTransport(base, nil)}
	r.fixed = func(token uint64) *http.Client {
		return &http.Client{
			Timeout:   opTimeout,
			Transport: fence.NewTransport(base, &fence.TransportOptions{Grant: fence.Fixed(LockName, token)}),
		}
	}
	r.client, err = tenure.New(store, &tenure.Options{
		LeaseDuration: r.config.Lease, RequestTimeout: r.config.Lease / 7, Owner: r.config.Name, Clock: r.held,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go r.obey(in, stop)
	go r.tick(ctx)
	r.campaign(ctx)
	bound, done := context.WithTimeout(context.Background(), 2*r.config.Lease)
	defer done()
	return errors.Join(r.client.Close(bound), store.Close())
}

// campaign takes the lock again and again until ctx ends.
func (r *replica) campaign(ctx context.Context) {
	random := rand.New(rand.NewPCG(r.config.Seed, 1))
	work := func(ctx context.Context, l *tenure.Lease) error { return r.work(ctx, l, random) }
	election := r.client.Election(LockName, nil)
	for ctx.Err() == nil {
		var err error
		if r.config.Lock {
			err = r.client.Run(ctx, LockName, &tenure.AcquireOptions{History: true, StoreTimeout: -1}, work)
		} else {
			err = election.Run(ctx, work)
		}
		if err != nil && ctx.Err() == nil && !expected(err) {
			r.say(Line{Kind: Trouble, Text: err.Error()})
		}
		// One that has just resigned lets others go first.
		select {
		case <-time.After(r.config.Lease / 4):
		case <-ctx.Done():
		}
	}
}
