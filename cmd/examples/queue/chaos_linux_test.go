// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

const asProgram = "TENURE_EXAMPLE_QUEUE"

// TestMain makes this binary the example program.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Three workers do what a producer adds meanwhile. One is killed, and one is
// stopped for longer than its lease and continues after that. Every job's effect
// exists, the effects in each partition are in order, and a former owner's effects
// never follow a later owner's.
func TestWorkersAreKilled(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	q := queueIn(t)
	workers := map[string]*exec.Cmd{}
	for i := range 3 {
		name := fmt.Sprint("w", i)
		workers[name] = q.start("work", "-locks", q.locks, "-owner", name, "-lease", "2s")
	}
	q.until("each worker has done some", func() bool {
		q.add(partitions)
		return q.count("SELECT count(DISTINCT worker) FROM results") == 3
	})
	producer := q.start("add", "-jobs", "2000")
	before := q.count("SELECT count(*) FROM results")
	q.until("some of it is done", func() bool { return q.count("SELECT count(*) FROM results") > before+5*partitions })
	q.signal(workers["w0"], syscall.SIGKILL)
	q.signal(workers["w1"], syscall.SIGSTOP)
	// If it was stopped in a transaction nobody else does anything until it goes
	// on, so there is nothing to wait for.
	time.Sleep(5 * time.Second)
	q.signal(workers["w1"], syscall.SIGCONT)
	if err := producer.Wait(); err != nil {
		t.Fatalf("the producer: %v: %s", err, producer.Stderr)
	}
	q.until("all jobs are done", q.done)
	q.add(20 * partitions) // for those who are there now
	q.until("all jobs are done", q.done)
	for _, name := range []string{"w1", "w2"} {
		q.signal(workers[name], syscall.SIGTERM)
		if err := workers[name].Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	q.check()
}

// All workers are stopped at once, as at the end of a deployment: none waits for
// the others to take over. Those that come back begin at the checkpoints, at once.
func TestAllAreStopped(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	const n, lease = 4, 15 * time.Second
	q := queueIn(t)
	for _, name := range []string{"w", "again"} {
		done := fmt.Sprintf("SELECT count(DISTINCT worker) FROM results WHERE worker LIKE '%s%%'", name)
		workers := make([]*exec.Cmd, n)
		for i := range workers {
			workers[i] = q.start("work", "-locks", q.locks, "-owner", fmt.Sprint(name, i), "-lease", lease.String())
		}
		q.until("each worker has done some", func() bool {
			q.add(partitions)
			return q.count(done) == n
		})
		begun := time.Now()
		for _, w := range workers {
			q.signal(w, syscall.SIGTERM)
		}
		for i, w := range workers {
			if err := w.Wait(); err != nil {
				t.Errorf("%s%d: %v", name, i, err)
			}
		}
		took := time.Since(begun)
		t.Logf("%d workers were gone %v after SIGTERM", n, took)
		if took > lease {
			t.Errorf("it took %v", took)
		}
	}
}

// check fails if an effect is missing, or in the wrong place.
func (q *queue) check() {
	q.t.Helper()
	jobs := q.count("SELECT count(*) FROM jobs")
	rows, err := q.db.QueryContext(q.t.Context(), "SELECT partition, number, token, worker FROM results ORDER BY id")
	if err != nil {
		q.t.Fatal(err)
	}
	defer rows.Close()
	type term struct {
		token  int
		worker string
		last   int // the number of the job that was done last
		most   int
	}
	terms := map[string]term{}
	effects, again, changes := 0, 0, 0
	for rows.Next() {
		var partition, worker string
		var number, token int
		if err := rows.Scan(&partition, &number, &token, &worker); err != nil {
			q.t.Fatal(err)
		}
		effects++
		now, begun := terms[partition]
		if !begun {
			now = term{token: token, worker: worker, last: -1, most: -1}
		}
		what := fmt.Sprintf("partition %s: job %d by %s under token %d comes after job %d by %s under token %d",
			partition, number, worker, token, now.last, now.worker, now.token)
		switch {
		case token < now.token:
			q.t.Error("a stale effect: ", what)
		case token == now.token && worker != now.worker:
			q.t.Error("two owners: ", what)
		case number > now.last+1:
			q.t.Error("out of order: ", what)
		case number <= now.most-checkpointEvery:
			q.t.Errorf("further back than the checkpoint, with job %d done: %s", now.most, what)
		}
		if token > now.token {
			changes++
		}
		if number <= now.most {
			again++
		}
		terms[partition] = term{token, worker, number, max(now.most, number)}
	}
	if err := rows.Err(); err != nil {
		q.t.Fatal(err)
	}
	// A third was w0's, and what w1 had it has lost.
	if effects-again != jobs || changes < partitions/3 {
		q.t.Errorf("%d jobs were done, want %d; %d changes of owners, want %d at least",
			effects-again, jobs, changes, partitions/3)
	}
	q.t.Logf("%d jobs, %d of them done again after a crash; %d changes of owners", jobs, again, changes)
}

// queue is the queue that the processes work on.
type queue struct {
	t         *testing.T
	db        *sql.DB
	file      string
	locks     string
	processes []*exec.Cmd
}

func queueIn(t *testing.T) *queue {
	dir := t.TempDir()
	q := &queue{t: t, file: filepath.Join(dir, "orders.db"), locks: filepath.Join(dir, "locks.db")}
	var err error
	if q.db, err = open(t.Context(), q.file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range q.processes {
			_ = p.Process.Kill() // it may have ended
			_ = p.Wait()
			if t.Failed() {
				t.Logf("%q:\n%s", p.Args[1:], p.Stderr)
			}
		}
		q.db.Close()
	})
	return q
}

func (q *queue) start(command string, args ...string) *exec.Cmd {
	q.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		q.t.Fatal(err)
	}
	p := exec.Command(exe, append([]string{command, "-db", q.file}, args...)...)
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Stderr = new(bytes.Buffer)
	if err := p.Start(); err != nil {
		q.t.Fatal(err)
	}
	q.processes = append(q.processes, p)
	return p
}

func (q *queue) signal(p *exec.Cmd, sig syscall.Signal) {
	q.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		q.t.Fatal(err)
	}
}

// add appends jobs, as the producer does.
func (q *queue) add(jobs int) {
	q.t.Helper()
	if err := add(q.t.Context(), q.db, jobs); err != nil {
		q.t.Fatal(err)
	}
}

// done says whether each job has been done.
func (q *queue) done() bool {
	q.t.Helper()
	return q.count("SELECT count(*) FROM (SELECT partition, number FROM jobs "+
		"EXCEPT SELECT partition, number FROM results)") == 0
}

func (q *queue) count(query string) (n int) {
	q.t.Helper()
	if err := q.db.QueryRowContext(q.t.Context(), query).Scan(&n); err != nil {
		q.t.Fatal(err)
	}
	return n
}

// until waits for something that the processes do.
func (q *queue) until(what string, ok func() bool) {
	q.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			q.t.Fatalf("not within two minutes: %s", what)
		}
	}
}
