// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"testing"
	"time"
)

// eventually fails the test unless look returns "": at once if the store
// declares no eventual reads, else within Patience. Look returns what is wrong
// so far.
func (e *env) eventually(t *testing.T, look func() (wrong string)) {
	t.Helper()
	begin := time.Now()
	for {
		wrong := look()
		if wrong == "" {
			return
		}
		if !e.h.EventualReads {
			t.Fatalf("%s (the harness declares no eventual reads)", wrong)
		}
		if time.Since(begin) > e.h.Patience {
			t.Fatalf("%s after %v", wrong, e.h.Patience)
		}
		<-time.After(5 * time.Millisecond)
	}
}
