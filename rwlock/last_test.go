// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"testing"

	"github.com/tenurelock/tenure"
)

// The epoch rises with terms that may have a write, and not with abandoned terms, as far
// as the gate shows: it keeps the two latest terms.
func TestEpochOfAbandonedTerms(t *testing.T) {
	const released, abandoned, expired = tenure.EndReleased, tenure.EndAbandoned, tenure.EndExpired
	given := note{Token: 4, Epoch: 3, Last: &tenure.Term{Token: 3}}
	for _, test := range []struct {
		name   string
		data   []byte
		token  uint64
		end    string
		before string // empty: not known
		want   uint64
	}{
		{"given back", given.bytes(), 4, released, released, 3},
		{"given back, then one abandoned", given.bytes(), 5, abandoned, released, 3},
		{"given back, then two abandoned", given.bytes(), 6, abandoned, abandoned, 3},
		{"given back, then three abandoned", given.bytes(), 7, abandoned, abandoned, 5},
		{"given back, then a writer", given.bytes(), 5, released, released, 5},
		{"given back, then a writer, then one abandoned", given.bytes(), 6, abandoned, released, 5},
		{"given back, then a writer that died, then one abandoned", given.bytes(), 6, abandoned, expired, 5},
		{"given back, then unknown, then abandoned", given.bytes(), 6, abandoned, "", 5},
		{"a writer, then two abandoned", nil, 3, abandoned, abandoned, 1},
		{"one abandoned", nil, 1, abandoned, "", 0},
		{"two abandoned", nil, 2, abandoned, abandoned, 0},
	} {
		var before *tenure.Term
		if test.before != "" {
			before = &tenure.Term{Token: test.token - 1, End: test.before}
		}
		n := wrote(test.data, tenure.Term{Token: test.token, End: test.end, Data: test.data}, before)
		if n.Epoch != test.want || (n.Last == nil) != (test.want == 0) || n.Last != nil && (n.Last.Token != test.want || n.Last.Data != nil) {
			t.Errorf("%s: epoch %d, last %v; want %d", test.name, n.Epoch, n.Last, test.want)
		}
	}
}
