// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

const (
	leastLease = time.Second
	mostLease  = time.Minute
)

// Cmd is `tenure demo`: three processes campaign for one lock on a fresh SQLite
// file, or on a store that is named. The leader is killed by SIGKILL, and one of the others takes over; that
// one is asked to step down, and the third takes over; at the end the history of
// the lock is shown. The demo times both, and fails if two led at once, if the tokens did not rise, or if a lease was
// not respected. It takes about three leases, and leaves nothing behind.
//
// The command line that embeds it must offer [ReplicaCmd] as [ReplicaCommand]
// besides.
type Cmd struct {
	Lease time.Duration `default:"3s" placeholder:"DUR" help:"Lease duration: how long a dead leader's lock stays taken, 1s to 1m (default: 3s)."`
	Store *string       `placeholder:"URL" help:"Where the lock is (default: a fresh SQLite file)."`
	Keep  bool          `help:"Keep the folder with the SQLite file, or the records of the lock."`
	JSON  bool          `name:"json" help:"Write what happens as JSON, one object a line."`
}

// Validate is called by kong when the flags have been read.
func (c *Cmd) Validate() error {
	if c.Lease < leastLease || c.Lease > mostLease {
		return fmt.Errorf("lease %v: the demo takes %v to %v", c.Lease, leastLease, mostLease)
	}
	if c.Lease%time.Millisecond != 0 {
		return fmt.Errorf("lease %v: it must be a whole number of milliseconds", c.Lease)
	}
	if c.Store == nil {
		return nil
	}
	at, err := storeurl.Parse(*c.Store)
	if err == nil && at.Private() {
		err = errors.New("three processes cannot share a store in memory: name another one, or leave --store out")
	}
	return err
}

// Run runs the demo on standard output. The error of a demo that a signal
// ended is an [*InterruptedError]; any other says what did not go as it must.
func (c *Cmd) Run() error {
	ctx, stop := interruptible()
	defer stop()
	url := ""
	if c.Store != nil {
		url = *c.Store
	}
	err := run(ctx, url, c.Lease, c.Keep, c.output())
	var i *InterruptedError
	if err != nil && !errors.As(err, &i) {
		return fmt.Errorf("demo: %w", err)
	}
	return err
}

func (c *Cmd) output() output {
	if c.JSON {
		return jsonLines{json.NewEncoder(os.Stdout)}
	}
	if s, ok := newScreen(os.Stdin, os.Stdout, os.Getenv); ok {
		return s
	}
	return plain{os.Stdout}
}

// InterruptedError is returned when a signal ended the demo. The replicas are
// ended, and the folder is removed.
type InterruptedError struct{ Signal os.Signal }

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("demo: ended by a signal (%v), and cleaned up", e.Signal)
}

// ExitCode returns 128 and the signal's number.
func (e *InterruptedError) ExitCode() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}

// interruptible returns a context that ends with an InterruptedError at the
// first signal that asks for the end, or says that nobody reads the output any
// more. Further ones are ignored: what is left to do is bounded. A
// signal that is ignored (nohup) stays so.
func interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		select {
		case s := <-signals:
			cancel(&InterruptedError{Signal: s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
