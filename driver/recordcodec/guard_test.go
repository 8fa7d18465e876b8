// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec

import (
	"errors"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// TestCheckToken: a token passes only while the lock is held under it.
func TestCheckToken(t *testing.T) {
	for _, tt := range []struct {
		column int64
		state  driver.State
		want   error
	}{
		{7, driver.Held, nil},
		{7, resting, nil},
		{7, driver.Released, ErrStale},
		{7, driver.Reserved, ErrStale},
		{7, "of a later version", ErrStale},
		{8, driver.Held, ErrStale},
		{8, driver.Released, ErrStale},
		{6, driver.Held, ErrUnknownToken},
		{6, driver.Released, ErrUnknownToken},
		{0, driver.Held, driver.ErrUnreadable},
		{-7, driver.Held, driver.ErrUnreadable},
	} {
		err := CheckToken("k", 7, tt.column, string(tt.state), "table x")
		if !errors.Is(err, tt.want) {
			t.Errorf("token 7, and the row has %d, %s: %v, want %v", tt.column, tt.state, err, tt.want)
		}
		if stale := (*StaleError)(nil); errors.As(err, &stale) && (stale.Token != 7 || stale.Highest != uint64(tt.column)) {
			t.Errorf("%+v, want the tokens 7 and %d", stale, tt.column)
		}
	}
}
