// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/sqlitestore"
)

// note adds a line to a journal that several processes write: their lines are
// in the order in which they were written.
func note(file string, words ...any) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, words...)
	return errors.Join(err, f.Close())
}

// electing are options with a lease that the noise of the machine does not end.
func electing(owner string) *tenure.Options {
	return &tenure.Options{LeaseDuration: 2 * time.Second, Owner: owner}
}

func elect(o order) (*tenure.Election, error) {
	s, err := sqlitestore.Open(o.File, nil)
	if err != nil {
		return nil, err
	}
	c, err := tenure.New(s, electing(o.Owner))
	if err != nil {
		return nil, err
	}
	return c.Election(lockName, nil), nil
}

// childCandidate leads whenever it is elected, until it is asked to stop.
func childCandidate(o order) error {
	e, err := elect(o)
	if err != nil {
		return err
	}
	say("ready")
	return e.Run(context.Background(), func(ctx context.Context, l *tenure.Lease) error {
		if err := note(o.Journal, "begin", o.Owner, l.Token()); err != nil {
			return err
		}
		say("leads", l.Token(), time.Now().UnixNano())
		<-ctx.Done()
		return errors.Join(note(o.Journal, "end", o.Owner, l.Token()), context.Cause(ctx))
	})
}

// childAsker has another process lead.
func childAsker(o order) error {
	e, err := elect(o)
	if err != nil {
		return err
	}
	say("asks", time.Now().UnixNano())
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	return e.Transfer(ctx, o.To, "drill for "+o.To)
}

// A process that neither leads nor waits has the leadership handed over to one
// candidate of three: that one leads next, and the former leader has stopped.
func TestTransferAmongProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, journal := filepath.Join(dir, "locks.db"), filepath.Join(dir, "journal")
	names := []string{"a", "b", "c"}
	candidates := map[string]*child{}
	for _, name := range names {
		candidates[name] = mustStart(t, order{Child: "candidate", File: file, Owner: name, Journal: journal})
		if _, err := candidates[name].line("ready"); err != nil {
			t.Fatal(err)
		}
		if name == "a" { // it leads first
			if _, err := candidates[name].line("leads"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := sqlitestore.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := tenure.New(s, electing("observer"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())

	leaders := []string{"a", "c", "b", "a", "b", "c", "a"}
	var took []float64
	for _, to := range leaders[1:] {
		// A reservation waits for a while for who was not waiting yet: a candidate
		// that has stepped down just now stands back.
		asker := mustStart(t, order{Child: "asker", File: file, Owner: "asker", To: to})
		asked, err := asker.line("asks")
		if err != nil {
			t.Fatal(err)
		}
		leads, err := candidates[to].line("leads")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := asker.rest(); err != nil {
			t.Fatal(err)
		}
		took = append(took, float64(between(t, asked, leads))/float64(c.Options().HeartbeatPeriod))
	}
	var want []string
	for i, name := range leaders {
		want = append(want, fmt.Sprintf("begin %s %d", name, i+1), fmt.Sprintf("end %s %d", name, i+1))
	}
	if got := lines(t, journal); !slices.Equal(got, want[:len(want)-1]) {
		t.Errorf("journal %q, want %q", got, want)
	}
	reader, err := tenure.New(s, &tenure.Options{Owner: "reader"}) // which has more time
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(t.Context())
	history, err := reader.History(t.Context(), lockName)
	if err != nil || len(history) != len(leaders) {
		t.Fatal(history, err)
	}
	for i, h := range history[1:] {
		next := history[i]
		if q := h.Request; h.End != tenure.EndHandedOver || q == nil || q.By != "asker" || q.To != next.Owner || q.Reason != "drill for "+next.Owner {
			t.Errorf("%+v, %+v", h, h.Request)
		}
		if h.Until.After(next.Since) || h.Until.Before(h.Since) {
			t.Errorf("%s led until %v, %s from %v", h.Owner, h.Until, next.Owner, next.Since)
		}
		for _, err := range []error{
			holds(history, h.Since, h.Owner, true),
			holds(history, h.Until.Add(-time.Nanosecond), h.Owner, true),
			holds(history, next.Since, next.Owner, true),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	slices.Sort(took)
	t.Logf("hand-over in heartbeat periods of %v: %.2f", c.Options().HeartbeatPeriod, took)
}

// between returns the time between two instants that were said last in a line.
func between(t *testing.T, from, to string) time.Duration {
	t.Helper()
	var at [2]int64
	for i, text := range []string{from, to} {
		words := strings.Fields(text)
		if _, err := fmt.Sscan(words[len(words)-1], &at[i]); err != nil {
			t.Fatal(err)
		}
	}
	return time.Duration(at[1] - at[0])
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		all = append(all, scan.Text())
	}
	return all
}
