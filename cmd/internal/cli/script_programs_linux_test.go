// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
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
	g, err := shard.New(client, flag.Arg(0), &shard.Options{
		Partitions: *partitions, Weight: *weight, Zone: *zone, Max: *limit,
	})
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

// session holds locks under one session, until SIGINT:
//
//	session [FLAG...] LOCK...
//
// It prints a line when it has all of them, and one for each that has ended.
func session() error {
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
		return client.Run(ctx, lock, &tenure.AcquireOptions{Data: []byte(text)},
			func(context.Context, *tenure.Lease) error { return nil })
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

// manager writes the messages of sd_notify(3) into a file, a line for each, until SIGINT:
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

// hostile is an owner as another client, or a person with an editor, may have written
// it: codes that colour, name and clear a terminal, lines that look like ours, text
// that runs backwards, and invisible characters. (Package printable tests bytes that
// are not text: no record may hold them.)
const hostile = "\x1b[31mPWN\x1b]0;title\a\x1b[2J\nfake  held  root\rover\u202eback\u2028\u2029\u200b\ufeff\u009b31m"

// deface writes hostile text wherever the records of the store have the word
// EVIL, in a key as well:
//
//	deface [-lease DURATION] [-age DURATION] [-drift LOCK]
//
// With a lease, a record that is held gets that, so that it runs out soon; with an
// age, a record that was released was released that much earlier. The holder of LOCK keeps a
// bound of a thousandth for clocks.
func deface() error {
	lease := flag.Duration("lease", 0, "")
	drift := flag.String("drift", "", "")
	age := flag.Duration("age", 0, "")
	flag.Parse()
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err != nil {
		return err
	}
	store, err := at.Open()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	ctx := context.Background()
	var all []driver.Record
	for cursor := ""; ; {
		page, err := store.List(ctx, "", cursor)
		if err != nil {
			return err
		}
		all = append(all, page.Records...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	n := 0
	for _, old := range all {
		if old.State == driver.Closed {
			continue // it stays as it is
		}
		rec := old
		for _, field := range []*string{&rec.Owner, &rec.Host, &rec.Label} {
			*field = strings.ReplaceAll(*field, "EVIL", hostile)
		}
		inJSON, err := json.Marshal(hostile)
		if err != nil {
			return err
		}
		rec.Data = bytes.ReplaceAll(rec.Data, []byte("EVIL"), inJSON[1:len(inJSON)-1])
		rec.Requests = nil
		for _, q := range old.Requests {
			rec.Requests = append(rec.Requests, *defaced(&q))
		}
		rec.Asked = defaced(rec.Asked)
		if rec.Prev != nil {
			prev := *rec.Prev
			prev.Asked = defaced(prev.Asked)
			prev.Owner, prev.Host, prev.Label = hostile, hostile, hostile
			rec.Prev = &prev
		}
		if *lease > 0 && rec.State == driver.Held {
			rec.Lease = *lease
		}
		if rec.State == driver.Released {
			rec.Until = rec.Until.Add(-*age)
		}
		if rec.Key == *drift {
			rec.Drift = 0.001
		}
		rec.Version = rand.Text()
		if rec.Key = strings.ReplaceAll(rec.Key, "EVIL", hostile); rec.Key != old.Key || rec.State == driver.Past {
			if err := store.Delete(ctx, old); err != nil {
				return fmt.Errorf("delete %q: %w", old.Key, err)
			}
			_, _, err = store.Claim(ctx, rec)
		} else {
			_, err = store.Swap(ctx, old, rec)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", rec.Key, err)
		}
		n++
	}
	if n == 0 {
		return errors.New("there is nothing to deface")
	}
	return nil
}

func defaced(q *driver.Request) *driver.Request {
	if q == nil {
		return nil
	}
	other := *q
	other.By, other.Reason, other.At = hostile, hostile, time.Now()
	if other.To != "" {
		other.To = hostile
	}
	return &other
}

// spoil makes the records of locks unreadable, in a SQLite file:
//
//	spoil LOCK...
func spoil() (err error) {
	file, isFile := strings.CutPrefix(os.Getenv("TENURE_STORE"), "sqlite:")
	if !isFile {
		return errors.New("TENURE_STORE is no sqlite:FILE")
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, lock := range os.Args[1:] {
		done, err := db.Exec("UPDATE tenure_records SET record = '{' WHERE name = ?", lock)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d records of %q were changed (%w)", n, lock, err)
		}
	}
	return nil
}

// scrape reads the metrics of an exporter until each pattern is found, and those that begin
// with "!" are not. It prints the metrics.
//
//	scrape LOG PATTERN...
func scrape() error {
	args := os.Args[1:]
	deadline := time.Now().Add(2 * time.Minute)
	shown, err := "", errors.New("no log yet")
	for time.Now().Before(deadline) {
		var log []byte
		if log, err = os.ReadFile(args[0]); err == nil {
			shown, err = metricsOf(string(log))
		}
		if err == nil {
			if err = missing(shown, args[1:]); err == nil {
				fmt.Fprint(os.Stdout, shown)
				return nil
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	return fmt.Errorf("%w; the last metrics:\n%s", err, shown)
}

func metricsOf(log string) (string, error) {
	_, url, found := strings.Cut(log, "serving ")
	url, _, whole := strings.Cut(url, "\n")
	if !found || !whole {
		return "", errors.New("the log names no address")
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

func missing(text string, patterns []string) error {
	for _, p := range patterns {
		pattern, not := strings.CutPrefix(p, "!")
		if regexp.MustCompile("(?m)"+pattern).MatchString(text) == not {
			return fmt.Errorf("not so: %s", p)
		}
	}
	return nil
}
