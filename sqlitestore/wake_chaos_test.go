// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

func init() { children["hold"] = childHold }

// childHold takes a lock and, for each line that it reads, releases it, says
// when that began, and takes it again when it is told to.
func childHold(file string) error {
	store, err := Open(file, nil)
	if err != nil {
		return err
	}
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: time.Minute, RefreshPeriod: time.Hour})
	if err != nil {
		return err
	}
	ctx := context.Background()
	in := bufio.NewScanner(os.Stdin)
	for {
		lease, err := client.Acquire(ctx, "x", nil)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "held")
		if !in.Scan() {
			return nil
		}
		began := time.Now()
		if err := lease.Release(ctx); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, began.UnixNano())
		if !in.Scan() {
			return nil
		}
	}
}

// TestWakeOfAnotherProcess has a waiter look once an hour. A release in
// another process must wake it all the same.
func TestWakeOfAnotherProcess(t *testing.T) {
	const rounds, warmup = 100, 3
	file := filepath.Join(t.TempDir(), "locks.db")
	holder := start(t, "hold", file, nil)
	say := func() {
		if _, err := holder.stdin.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
	}
	store, err := Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan uint64, 2*rounds)
	client, err := tenure.New(store, &tenure.Options{
		LeaseDuration: time.Minute, RefreshPeriod: time.Hour,
		OnEvent: func(e tenure.Event) {
			if e.Kind == tenure.EventWaiting {
				waiting <- e.Token
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = client.Close(context.WithoutCancel(t.Context())) // nothing is held
		_ = store.Close()                                    // nor open
	}()

	var took []time.Duration
	for range rounds + warmup {
		if line := <-holder.out; line != "held" {
			t.Fatalf("holder says %q", line)
		}
		woken := make(chan time.Time, 1)
		go func() {
			lease, err := client.Acquire(t.Context(), "x", nil)
			if err != nil {
				t.Error(err)
				close(woken)
				return
			}
			woken <- time.Now()
			if err := lease.Release(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			close(woken)
		}()
		// The holder has every other token.
		if token := <-waiting; token%2 != 1 {
			t.Fatalf("waiting for token %d, which is not the holder's", token)
		}
		time.Sleep(20 * time.Millisecond) // the watch is set up, and the look after it is over
		say()
		began, err := strconv.ParseInt(strings.TrimSpace(<-holder.out), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		// The next look of its own would come 50 s later.
		select {
		case at := <-woken:
			took = append(took, at.Sub(time.Unix(0, began)))
		case <-time.After(30 * time.Second):
			t.Fatal("the waiter was not woken by the release")
		}
		<-woken
		say()
	}
	_ = holder.stdin.Close()
	took = took[warmup:]
	slices.Sort(took)
	t.Logf("release in one process to the lease in another, %d rounds: median %v, p99 %v, highest %v",
		rounds, took[rounds/2], took[rounds*99/100], took[rounds-1])
}
