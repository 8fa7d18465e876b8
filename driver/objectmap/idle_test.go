// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/driver/objectmap"
)

// TestIdle: many calls without an answer close the connections once a second.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drops := 0
		idle := objectmap.NewIdle(func() { drops++ })
		for range 3 {
			idle.Unheard()
			idle.Unheard()
			time.Sleep(time.Second)
		}
		if drops != 3 {
			t.Errorf("idle connections were closed %d times in three seconds", drops)
		}
		objectmap.NewIdle(nil).Unheard()
	})
}
