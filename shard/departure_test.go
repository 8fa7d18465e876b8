// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAPlanThatNobodySaw: a worker that leaves hands nothing over for the time of one
// poll after it has missed a plan, which the next owner may act on.
func TestAPlanThatNobodySaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := member{Session: "b", Weight: 1}
		at := func(epoch uint64) *view {
			return newView(membership{Format: membershipFormat, Epoch: epoch, Members: []member{to}}, spec{Count: 1}, nil)
		}
		d := &departure{}
		for _, step := range []struct {
			from, to uint64
			knows    bool
		}{{3, 4, true}, {4, 6, false}, {6, 7, false}} {
			d.replaces(at(step.from), at(step.to), time.Second)
			if d.knows("0", to) != step.knows {
				t.Errorf("after plan %d followed %d: its owner knows of it: %v", step.to, step.from, !step.knows)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if d.replaces(at(7), at(8), time.Second); !d.knows("0", to) {
			t.Error("a plan that was missed is remembered for longer than one poll")
		}
	})
}
