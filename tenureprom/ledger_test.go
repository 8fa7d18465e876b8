// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureprom_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/tenureprom"
	"github.com/tenurelock/tenure/tenuretest"
)

// What a ledger shows: the last run, how it ended, and the last success, which a monitor
// needs even when the ledger has forgotten it.
func TestLedger(t *testing.T) {
	tenuretest.Test(t, func(t *testing.T, w *tenuretest.World) {
		_, l := watcher(t, w, tenureprom.LocksOptions{Names: []string{"nightly:once", "vacuum:every", "plain:once", "clocks:once", "weekdays:once"}})
		a := w.Client("a")
		hour := once.Minute(time.Now())
		o := &once.Options{
			Schedule: &once.Schedule{Text: "each hour", After: func(slot int64, count int) (slots []int64) {
				for range count {
					slot += 60
					slots = append(slots, slot)
				}
				return slots
			}},
			Between: func(last, slot int64) (slots []int64, more int) {
				for s := last + 60; s < slot; s += 60 {
					slots = append(slots, s)
				}
				return slots, 0
			},
		}
		runOnce := func(slot int64, took time.Duration, err error) {
			_, _ = once.Once(t.Context(), a.Client, "nightly", slot, o, func(context.Context, *once.Turn) error {
				time.Sleep(took)
				return err
			})
		}
		// The last success is the last one, though a clock that was fast has an earlier one later.
		at := time.Now().UnixMilli()
		data := fmt.Sprintf(`{"ledger":"once/2","begun":[[1,2]],"runs":[
			{"slot":1,"token":1,"owner":"fast","begun":%[2]d,"ended":%[2]d,"state":"done","attempts":1},
			{"slot":2,"token":1,"owner":"right","begun":%[1]d,"ended":%[1]d,"state":"done","attempts":1}]}`, at, at+10_800_000)
		lease := testutil.Must(a.Acquire(t.Context(), "clocks:once", &tenure.AcquireOptions{Data: []byte(data)}))(t)
		_ = lease.Release(t.Context()) // nothing was done under it

		// A job of working days, on Monday: the last success is three days old.
		minute := once.Minute(time.Now())
		data = fmt.Sprintf(`{"ledger":"once/2","begun":[[%[1]d,%[2]d]],"schedule":{"text":"weekdays","sum":"x","after":%[2]d,"next":%[3]d},"runs":[
			{"slot":%[1]d,"token":1,"owner":"a","begun":%[4]d,"ended":%[4]d,"state":"done","attempts":1},
			{"slot":%[2]d,"token":1,"owner":"a","begun":%[5]d}]}`, minute-3*1440, minute, minute+1440, at-3*86_400_000, at)
		lease = testutil.Must(a.Acquire(t.Context(), "weekdays:once", &tenure.AcquireOptions{Data: []byte(data)}))(t)
		_ = lease.Release(t.Context()) // nothing was done under it

		run(t.Context(), l)
		time.Sleep(2 * time.Second)
		want(t, l, "on Monday", map[string]float64{"tenure_once_period_seconds{name=weekdays:once}": 3 * 86400})
		want(t, l, "a clock that was fast", map[string]float64{"tenure_once_last_success_timestamp_seconds{name=clocks:once}": float64(at) / 1000})
		want(t, l, "no ledger", map[string]float64{"tenure_once_last_slot{name=nightly:once}": absent, "tenure_once_last_slot{name=plain:once}": absent, "tenure_once_last_success_timestamp_seconds{name=nightly:once}": absent})
		begun := float64(time.Now().Unix())
		go runOnce(hour, time.Minute, nil)
		time.Sleep(30 * time.Second)
		want(t, l, "it runs", map[string]float64{
			"tenure_once_last_slot{name=nightly:once}": float64(hour), "tenure_once_running_since_timestamp_seconds{name=nightly:once}": begun,
			"tenure_once_last_status{name=nightly:once}": absent, "tenure_once_period_seconds{name=nightly:once}": 3600,
		})
		time.Sleep(time.Minute)
		done := map[string]float64{
			"tenure_once_last_status{name=nightly:once}": 0, "tenure_once_last_duration_seconds{name=nightly:once}": 60, "tenure_once_running_since_timestamp_seconds{name=nightly:once}": absent,
			"tenure_once_last_success_timestamp_seconds{name=nightly:once}": begun + 60, "tenure_once_missed{name=nightly:once}": 0,
		}
		want(t, l, "it is done", done)
		for i := range int64(25) {
			runOnce(hour+60*(i+3), time.Second, errors.New("the disk is full"))
			time.Sleep(2 * time.Second)
		}
		want(t, l, "it fails", map[string]float64{
			"tenure_once_last_status{name=nightly:once}": 1, "tenure_once_last_success_timestamp_seconds{name=nightly:once}": begun + 60, "tenure_once_last_slot{name=nightly:once}": float64(hour + 60*27),
		})
		runOnce(hour+60*30, time.Second, nil)
		time.Sleep(2 * time.Second)
		want(t, l, "after two that were missed", map[string]float64{"tenure_once_missed{name=nightly:once}": 2, "tenure_once_last_status{name=nightly:once}": 0})
		_ = once.Reset(t.Context(), a.Client, "nightly", hour, "a test")
		time.Sleep(2 * time.Second)
		want(t, l, "a reset is no run", map[string]float64{"tenure_once_last_slot{name=nightly:once}": float64(hour + 60*30), "tenure_once_last_status{name=nightly:once}": 0})

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = once.Every(ctx, a.Client, "vacuum", time.Hour, nil, func(context.Context, *once.Turn) error { return nil })
		}()
		time.Sleep(90 * time.Minute)
		stop()
		<-ended
		time.Sleep(2 * time.Second)
		want(t, l, "every", map[string]float64{"tenure_once_last_slot{name=vacuum:every}": 1, "tenure_once_period_seconds{name=vacuum:every}": 3600, "tenure_once_last_status{name=vacuum:every}": 0})
	})
}
