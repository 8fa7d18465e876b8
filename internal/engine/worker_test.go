// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// answers is a request that counts its answers.
type answers struct{ atomic.Int64 }

func (a *answers) Make(context.Context) (rec, former driver.Record, err error) {
	return rec, former, nil
}

func (a *answers) Answer(driver.Record, driver.Record, error) { a.Add(1) }

// TestLateGivingUpMeetsTheNextCall: the timer of a call that has returned meanwhile does
// not give up the following call before that call's time has come.
func TestLateGivingUpMeetsTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 2 * time.Second
		w, a := &worker{}, &answers{}
		w.begin(storeCall{request: a}, time.Now(), patience)
		for left := patience; left > 0; left -= patience / 4 {
			w.giveUp()
			if a.Load() > 0 {
				t.Fatalf("given up %v too early", left)
			}
			time.Sleep(patience / 4)
		}
		synctest.Wait()
		if n := a.Load(); n != 1 {
			t.Errorf("answered %d times", n)
		}
		w.giveUp()
		if w.first() || a.Load() != 1 {
			t.Error("answered again")
		}
	})
}
