// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
)

// A signal that comes at the end of a step ends the campaign, or is there for the
// next step: its sender waits for the end.
func TestNoSignalIsLostBetweenSteps(t *testing.T) {
	store := memstore.New()
	open := func(owner string) *tenure.Client {
		client, err := tenure.New(store.Open(), &tenure.Options{Owner: owner})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(context.WithoutCancel(t.Context())) })
		return client
	}
	lease, err := open("other").Acquire(t.Context(), "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(t.Context()) }()
	tn := &command{
		console: &console{quiet: true}, client: open("this"),
		waiting: make(chan struct{}, 1), signals: &signals{c: make(chan os.Signal, 1)},
	}
	tn.on("job")
	now := time.Duration(0)
	for name, step := range map[string]func() error{
		"idle":      func() error { return tn.idle(t.Context(), time.Microsecond) },
		"standBack": func() error { return tn.standBack(t.Context()) },
		"acquire": func() error {
			_, err := tn.acquire(t.Context(), patience{wait: &now, held: 75})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended, kept := 0, 0
			for i := range 3000 {
				go func() {
					for range i % 50 {
						runtime.Gosched()
					}
					tn.signals.c <- syscall.SIGTERM
				}()
				err := step()
				if errors.As(err, new(signaled)) {
					ended++
					continue
				}
				select {
				case <-tn.signals.c:
					kept++
				case <-time.After(20 * time.Second):
					t.Fatalf("signal %d is lost: %d have ended the step, %d were kept (%v)", i, ended, kept, err)
				}
			}
			t.Logf("%d have ended the step, %d were kept", ended, kept)
		})
	}
}
