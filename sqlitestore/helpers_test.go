// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// mustOpen returns a store that receives the kernel's events, if there are any.
func mustOpen(tb testing.TB, file string) *Store {
	tb.Helper()
	s, err := Open(file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	<-s.watches.asked
	return s
}

var serial atomic.Int64

func fresh() string { return fmt.Sprintf("%d-%08d", os.Getpid(), serial.Add(1)) }

func held(key, owner string) driver.Record {
	version := fresh()
	return driver.Record{
		Key: key, Version: version, Beat: version, Owner: owner, Lease: time.Minute, State: driver.Held,
		Host: "host", Label: "v1", Since: time.Now(),
	}
}

// under returns a record for a claim under a session.
func under(key, session string) driver.Record {
	rec := held(key, "us")
	rec.Session = session
	return rec
}

// next returns the record for a heartbeat.
func next(rec driver.Record) driver.Record {
	rec = rec.Clone()
	rec.Version = fresh()
	rec.Beat = rec.Version
	return rec
}

func released(rec driver.Record) driver.Record {
	rec = rec.Clone()
	rec.Version, rec.State, rec.End, rec.Until = fresh(), driver.Released, driver.EndReleased, time.Now()
	return rec
}

// shell runs a statement like the sqlite3 shell, on a connection of its own.
func shell(tb testing.TB, file, sql string, args ...sqldriver.Value) {
	tb.Helper()
	c := dialTest(tb, file)
	defer func() { _ = c.close() }()
	if _, err := c.exec(sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// ask returns the first value of the first row.
func ask(tb testing.TB, file, sql string) (answer sqldriver.Value) {
	tb.Helper()
	c := dialTest(tb, file)
	defer func() { _ = c.close() }()
	if err := c.query(sql, func(row []sqldriver.Value) bool {
		answer = row[0]
		return false
	}); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func dialTest(tb testing.TB, file string) *conn {
	tb.Helper()
	c, err := dial(file, "rwc")
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.run("PRAGMA busy_timeout = 5000"); err != nil {
		tb.Fatal(err)
	}
	return c
}

// plant writes a record past the rules of Claim and Swap.
func plant(tb testing.TB, file string, rec driver.Record) {
	tb.Helper()
	if rec.Token == 0 {
		rec.Token = 1
	}
	shell(tb, file, sqlPut, encode(rec)...)
}

// eventually waits for something that other goroutines or processes bring
// about.
func eventually(tb testing.TB, check func() error) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(2 * time.Minute) // two cores, and five times as many processes
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatal(err)
		}
		<-tick.C
	}
}
