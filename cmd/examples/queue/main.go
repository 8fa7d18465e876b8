// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Queue is an example: a queue in partitions, and any number of worker
// processes that distribute the partitions among themselves.
//
//	queue work -db orders.db     # in three terminals
//	queue add -db orders.db -jobs 1000
//	tenure shard orders --watch --store sqlite:locks.db
//
// Each partition is worked on by one worker at a time, in order. Kill a worker
// with SIGKILL: when its lease has run out, the others continue its partitions at
// the last checkpoint. No job is lost. The next worker repeats the jobs after the
// checkpoint; but a former worker that was paused, and does not know that its term
// is over, cannot write in between.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/shard"
	"github.com/tenurelock/tenure/sqlitestore"
)

const (
	group           = "orders"
	partitions      = 12
	checkpointEvery = 10 // jobs: as many are done twice at most
	poll            = 50 * time.Millisecond
)

// The queue, and what comes of it. Several rows for a job are possible: one for
// each time that it was done.
const schema = `
CREATE TABLE IF NOT EXISTS jobs (
	partition TEXT, number INTEGER, payload TEXT, PRIMARY KEY (partition, number));
CREATE TABLE IF NOT EXISTS results (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	partition TEXT, number INTEGER, result TEXT, token INTEGER, worker TEXT);
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "work" && args[0] != "add" {
		return errors.New("usage: queue work|add [flags]")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	file := flags.String("db", "orders.db", "the SQLite `file` of the queue")
	locks := flags.String("locks", "locks.db", "work: the SQLite `file` of the locks")
	jobs := flags.Int("jobs", 100, "add: how many `jobs`")
	owner := flags.String("owner", "", "work: the `name` of this worker; one of its own if empty")
	lease := flags.Duration("lease", 5*time.Second, "work: after which time without a sign of life others take over")
	took := flags.Duration("took", 5*time.Millisecond, "work: how long a job takes")
	_ = flags.Parse(args[1:]) // it exits

	db, err := open(ctx, *file)
	if err != nil {
		return err
	}
	if args[0] == "add" {
		return add(ctx, db, *jobs)
	}
	return work(ctx, *locks, &tenure.Options{Owner: *owner, LeaseDuration: *lease}, &worker{db: db, took: *took})
}

func open(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, schema)
	return db, err
}

// add is the producer: it appends jobs to the partitions in turn.
func add(ctx context.Context, db *sql.DB, jobs int) error {
	for i := range jobs {
		_, err := db.ExecContext(ctx, `INSERT INTO jobs (partition, number, payload)
			SELECT ?1, count(*), ?2 FROM jobs WHERE partition = ?1`,
			strconv.Itoa(i%partitions), fmt.Sprintf("order %d", i))
		if err != nil {
			return err
		}
	}
	return nil
}

// work joins the group, and works on what this worker gets until ctx ends. Then
// it hands its partitions over to the others, one by one.
func work(ctx context.Context, locks string, o *tenure.Options, w *worker) error {
	store, err := sqlitestore.Open(locks, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // every write was confirmed
	client, err := tenure.New(store, o)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(ctx) }() // Run has given everything back
	w.owner = client.Options().Owner
	if w.fence, err = fence.NewSQL(nil); err != nil {
		return err
	}
	if err := w.fence.CreateTable(ctx, w.db); err != nil {
		return err
	}
	orders, err := shard.New(client, group, &shard.Options{
		Partitions: partitions,
		OnEvent: func(e shard.Event) {
			slog.Info(string(e.Kind), "worker", w.owner, "partition", e.Partition, "error", e.Err)
		},
	})
	if err != nil {
		return err
	}
	return orders.Run(ctx, w.drain)
}

// worker does the jobs of the partitions that this process has.
type worker struct {
	db    *sql.DB
	fence *fence.SQL
	owner string
	took  time.Duration
}

// drain works on one partition, for as long as this worker has it: until ctx
// ends. It runs in a goroutine for each.
func (w *worker) drain(ctx context.Context, p *shard.Partition) error {
	// From here on no former owner of this partition can write, so what is read now
	// does not change.
	if err := w.fence.Admit(ctx, w.db, p.Name(), p.Token()); err != nil {
		return err
	}
	next, err := offset(p.Last())
	if err != nil {
		return err
	}
	saved := next
	for ctx.Err() == nil {
		found, err := w.do(ctx, p, next)
		if err == nil && found {
			next++
		}
		if err == nil && next > saved && (!found || next-saved >= checkpointEvery) {
			saved = next
			err = p.Checkpoint(ctx, []byte(strconv.Itoa(next)))
		}
		if err != nil && ctx.Err() == nil {
			return err // it is run again, and begins at the last checkpoint
		}
		if !found {
			wait(ctx, poll)
		}
	}
	if next == saved || p.Check() != nil {
		return nil // there is nothing to save, or it is lost
	}
	// The next owner of the partition continues exactly here.
	return p.Checkpoint(context.WithoutCancel(ctx), []byte(strconv.Itoa(next)))
}

// offset reads a checkpoint: the number of the first job that is not done.
func offset(checkpoint []byte) (int, error) {
	if checkpoint == nil {
		return 0, nil
	}
	return strconv.Atoi(string(checkpoint))
}

// do does one job of the partition, if there is one.
func (w *worker) do(ctx context.Context, p *shard.Partition, number int) (found bool, err error) {
	var payload string
	err = w.db.QueryRowContext(ctx, "SELECT payload FROM jobs WHERE partition = ? AND number = ?", p.ID(), number).
		Scan(&payload)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	wait(ctx, w.took) // the work

	// The effect. Tx asks p.Check before it begins, and again before it commits.
	// That is nearly always enough. The rest is the fence's: this process may be
	// paused after the last Check for longer than its lease lasts, and then its
	// token is refused if the partition has had another owner.
	return true, w.fence.Tx(ctx, w.db, p.Name(), p, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO results (partition, number, result, token, worker) VALUES (?, ?, ?, ?, ?)",
			p.ID(), number, payload+" shipped", p.Token(), w.owner)
		return err
	})
}

// wait pauses for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
