// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// ReplicaCommand is the name under which the command line must offer
// [ReplicaCmd], hidden: the demo starts this program again with it.
const ReplicaCommand = "demo-replica"

// closeTimeout bounds the end of a replica, and its life after the demo's.
const closeTimeout = 2 * time.Second

// ReplicaCmd is one of the processes of the demo. It ends on SIGTERM, and when
// its standard input ends: then whoever started it is gone. The store is the one of
// TENURE_STORE, not of an argument, which others can see.
type ReplicaCmd struct {
	Name  string        `arg:"" help:"The replica's name as an owner."`
	Lock  string        `arg:"" help:"The lock."`
	Lease time.Duration `arg:"" help:"The lease duration."`
}

var errOrphaned = errors.New("the process that started this replica is gone")

// Run campaigns until it is told to end. It reports on standard output.
func (c *ReplicaCmd) Run() (err error) {
	tell := &teller{name: c.Name, out: json.NewEncoder(os.Stdout)}
	defer func() {
		r := report{Kind: ended}
		if err != nil {
			r.Error = err.Error()
		}
		tell.report(r)
	}()
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err != nil {
		return err
	}
	store, err := at.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: c.Lease, Owner: c.Name, OnEvent: tell.event})
	if err != nil {
		return err
	}
	defer func() {
		bound, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = errors.Join(err, client.Close(bound))
	}()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go obey(os.Stdin, cancel) // lives as long as the process: nothing ends a read of standard input
	return campaign(ctx, client, c.Lock, tell)
}

// campaign campaigns until ctx ends, and leads for as long as it may.
func campaign(ctx context.Context, client *tenure.Client, lock string, tell *teller) error {
	tell.report(report{Kind: campaigning})
	err := client.Election(lock, nil).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
		r := report{Kind: leading, Token: l.Token()}
		if p, ok := l.Previous(); ok {
			r.Previous = &previous{Owner: p.Owner, Token: p.Token, End: p.End}
		}
		tell.report(r)
		<-ctx.Done() // the work of a leader would be here
		tell.report(report{Kind: stopping, Token: l.Token(), Error: context.Cause(ctx).Error()})
		tell.report(report{Kind: stopped, Token: l.Token()})
		return nil
	})
	if cause := context.Cause(ctx); errors.Is(cause, errOrphaned) {
		return cause
	}
	return err
}

// obey ends the replica when a line comes on its standard input, which is how
// it is asked to end where there is no SIGTERM, or when the input ends. Without
// a demo to wait for it, the process has a bounded time to do so.
func obey(in io.Reader, cancel context.CancelCauseFunc) {
	if _, err := bufio.NewReader(in).ReadString('\n'); err == nil {
		cancel(context.Canceled)
		return
	}
	time.AfterFunc(closeTimeout, func() { os.Exit(1) })
	cancel(errOrphaned)
}

// teller writes reports. Its methods may be called concurrently.
type teller struct {
	name string
	mu   sync.Mutex // guards out
	out  *json.Encoder
}

func (t *teller) report(r report) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r.Replica, r.PID = t.name, os.Getpid()
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.out.Encode(r) // without a reader the demo is gone, and standard input tells so
}

// event hands on the events of the client that the election's work does not
// see itself.
func (t *teller) event(e tenure.Event) {
	r := report{Time: e.Time, Token: e.Token, Took: seconds(e.Took)}
	if e.Err != nil {
		r.Error = e.Err.Error()
	}
	switch e.Kind {
	case tenure.EventWaiting:
		r.Kind, r.Owner = waiting, e.Owner
	case tenure.EventRenewed:
		r.Kind = renewed
	case tenure.EventJeopardy, tenure.EventStoreError:
		r.Kind = trouble
	case tenure.EventLost, tenure.EventStopTimeout, tenure.EventEnded:
		r.Kind = lost
	case tenure.EventReleased:
		r.Kind = released
	default:
		return
	}
	t.report(r)
}
