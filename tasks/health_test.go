// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tasks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/tasks"
)

// TestUnhealthyLeaderGivesWay: its tasks are told, the tenure ends as failed, and the
// replica leads again when its cool-down is over.
func TestUnhealthyLeaderGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := tenure.New(memstore.New(), &tenure.Options{Owner: "a", Label: "v2", Clock: tenure.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.WithoutCancel(t.Context()))
		e := client.Election(election, &tenure.ElectionOptions{
			CoolDown: 10 * time.Second, HealthPeriod: time.Second, HealthFailures: 2,
			Health: func(_ context.Context, l *tenure.Lease) error {
				if l.Token() == 1 {
					return errTask
				}
				return nil
			},
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		group := tasks.New(e, nil)
		begun := time.Now()
		var led []time.Duration
		group.Leading("work", func(ctx context.Context, l *tenure.Lease) error {
			led = append(led, time.Since(begun).Round(time.Second))
			<-ctx.Done()
			if l.Token() == 1 && !errors.Is(context.Cause(ctx), tenure.ErrUnhealthy) {
				t.Errorf("told to stop because of %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		if err := group.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(led) != 2 || led[1] != 12*time.Second {
			t.Errorf("it led after %v, want after 0s and 12s", led)
		}
		history, err := client.History(t.Context(), election)
		if err != nil || len(history) != 2 || history[1].End != tenure.EndFailed || history[0].End != tenure.EndReleased {
			t.Errorf("history %+v, %v", history, err)
		}
	})
}
