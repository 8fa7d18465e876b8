// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/once"
)

// A leader is told to end while the claim of a period does not get through, and its
// callback takes long. The release begins the period then, at no age.
func TestEveryEndsWithAnUnconfirmedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEveryStage(t)
		a, b := s.host("a", 1), s.host("b", 1)
		const took = lease / 3 // of the callback; the heartbeats of a do not get through meanwhile
		heal := a.faults.Inject(faultstore.Rule{
			Match: func(c faultstore.Call) bool { return numberOf(c.Next.Data) == 1 },
			Fault: faultstore.BlackHole(),
		})
		var told error
		stop := a.lives(hour, &once.EveryOptions{OnRun: func(_ once.Run, err error) {
			told = err
			time.Sleep(took)
			heal()
		}}, nil)
		time.Sleep(hour + time.Second) // the claim is under way
		if n := len(s.begun()); n != 0 {
			t.Fatalf("%d periods begun, though no claim gets through", n)
		}
		stop()
		synctest.Wait()
		_ = as[*once.NotRunError](t, told)
		at := s.begun()
		if len(at) != 1 {
			t.Fatalf("begun at %v, want one period, by the release", at)
		}
		if age := b.showEvery().Age; age != 0 {
			t.Errorf("the period was begun at the age %v", age)
		}
		defer b.lives(hour, nil, nil)()
		time.Sleep(2 * hour)
		if at = s.begun(); len(at) < 2 {
			t.Errorf("begun at %v", at)
		}
		s.spaced(hour)
	})
}
