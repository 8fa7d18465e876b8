// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/shard"
)

// The scripts want processes that hold locks under a session, which no command
// of tenure does.

// worker is a worker of a group of partitions, until SIGINT:
//
//	worker [FLAG...] GROUP
//
// It checkpoints each partition once.
func worker() error {
	owner := flag.String("owner", "", "")
	partitions := flag.Int("partitions", 8, "")
	weight := flag.Float64("weight", 1, "")
	limit := flag.Int("max", 0, "")
	zone := flag.String("zone", "", "")
	label := flag.String("label", "", "")
	lease := flag.Duration("lease", 3*time.Second, "")
	flag.Parse()
	client, err := begin(tenure.Options{Owner: *owner, Label: *label, LeaseDuration: *lease})
	if err != nil {
		return err
	}
	g, err := shard.New(client, flag.Arg(0), &shard.Options{Partitions: *partitions, Weight: *weight, Zone: *zone, Max: *limit})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return g.Run(ctx, func(ctx context.Context, p *shard.Partition) error {
		if p.Last() == nil {
			if err := p.Checkpoint(ctx, []byte("done: "+p.ID())); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

// keeper holds locks under one session, until SIGINT:
//
//	keeper [FLAG...] LOCK...
//
// It prints a line when it has all of them, and one for each that has ended.
func keeper() error {
	owner := flag.String("owner", "", "")
	lease := flag.Duration("lease", 3*time.Second, "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := begin(tenure.Options{Owner: *owner, LeaseDuration: *lease})
	if err != nil {
		return err
	}
	s, err := client.OpenSession(ctx, nil)
	if err != nil {
		return err
	}
	for _, name := range flag.Args() {
		l, err := s.TryAcquire(ctx, name, nil)
		if err != nil {
			return err
		}
		go func() {
			<-l.Context().Done()
			fmt.Fprintln(os.Stdout, name, context.Cause(l.Context()))
			_ = l.Release(context.WithoutCancel(ctx)) // it may be lost
		}()
	}
	fmt.Fprintln(os.Stdout, "session", s.ID())
	<-ctx.Done()
	return s.Close(context.WithoutCancel(ctx))
}

// inscribe writes data into a lock that is free, as a program does that knows of no
// ledgers:
//
//	inscribe LOCK TEXT
func inscribe() error {
	return alone(func(ctx context.Context, client *tenure.Client, lock, text string) error {
		return client.Run(ctx, lock, &tenure.AcquireOptions{Data: []byte(text)}, func(context.Context, *tenure.Lease) error { return nil })
	})
}

// inscribed fails unless a lock has that data:
//
//	inscribed LOCK TEXT
func inscribed() error {
	return alone(func(ctx context.Context, client *tenure.Client, lock, text string) error {
		st, err := client.Status(ctx, lock)
		if err == nil && string(st.Data) != text {
			err = fmt.Errorf("%q has the data %q, want %q", lock, st.Data, text)
		}
		return err
	})
}

// manager writes what it is told by sd_notify(3) into a file, a line for each, until SIGINT:
//
//	manager FILE
func manager() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	told, err := os.Create(os.Args[1])
	if err != nil {
		return err
	}
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		if ctx.Err() != nil {
			return told.Close()
		} else if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(told, "%s\n", b[:n]); err != nil {
			return err
		}
	}
}

// alone uses the store of TENURE_STORE for a lock and a text.
func alone(use func(ctx context.Context, client *tenure.Client, lock, text string) error) error {
	client, err := begin(tenure.Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	return errors.Join(use(ctx, client, os.Args[1], os.Args[2]), client.Close(ctx))
}

// begin opens the store of TENURE_STORE.
func begin(o tenure.Options) (*tenure.Client, error) {
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err != nil {
		return nil, err
	}
	store, err := at.Open()
	if err != nil {
		return nil, err
	}
	return tenure.New(store, &o)
}
