// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

const (
	// mostRecords bounds how many records are looked at, and recordsPatience how
	// long.
	mostRecords     = 5000
	recordsPatience = 10 * time.Second
	// mostNamed is how many of those that are wrong are named.
	mostNamed = 3
)

// records looks at what stands in the store: whether all of it can be read, and
// whether those who hold something count time alike.
func (p *Patient) records(ctx context.Context, store driver.Store) {
	ctx, cancel := context.WithTimeout(ctx, recordsPatience)
	defer cancel()
	unreadable := map[string]string{}
	holders := map[float64][]string{} // by the bound that they keep for the rate of a clock
	seen := 0
	for cursor := ""; seen < mostRecords; {
		page, err := store.List(ctx, "", cursor)
		if err != nil {
			if p.Engine == nil { // an engine's permissions have told it
				p.Tell(Finding{"records", Warn, "cannot be listed: " + err.Error(), "tenure status without a name does not work"})
			}
			return
		}
		for key, err := range page.Unreadable {
			unreadable[key] = err.Error()
		}
		for _, r := range page.Records {
			switch {
			case strings.HasPrefix(r.Key, driver.OwnPrefix) && !r.State.OfSession():
			case !r.State.OfSession() && !protocol.Readable(r):
				unreadable[r.Key] = fmt.Sprintf("its lease is %v, and its state %q", r.Lease, r.State)
			case (r.State == driver.Held || r.State == driver.Alive) && r.Drift > 0:
				holders[r.Drift] = append(holders[r.Drift], r.Owner)
			}
		}
		seen += len(page.Records) + len(page.Unreadable)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(unreadable) == 0 {
		p.Tell(Finding{"records", OK, fmt.Sprintf("all of %d records can be read", seen), ""})
	} else {
		var some []string
		for _, key := range slices.Sorted(maps.Keys(unreadable)) {
			if len(some) == mostNamed {
				some = append(some, "and others")
				break
			}
			some = append(some, fmt.Sprintf("%q: %s", key, unreadable[key]))
		}
		p.Tell(Finding{
			"records", Warn, fmt.Sprintf("%d of %d records cannot be read: %s", len(unreadable), seen, strings.Join(some, "; ")),
			"such a lock can neither be taken nor released: another version of Tenure, or another program, has written it; delete it when nobody uses it",
		})
	}
	p.drift(holders)
}

// drift compares what those who hold something take for the largest error of a
// clock's rate.
func (p *Patient) drift(holders map[float64][]string) {
	if len(holders) < 2 {
		return
	}
	var all []string
	for _, bound := range slices.Sorted(maps.Keys(holders)) {
		all = append(all, fmt.Sprintf("%g %% (%q)", 100*bound, holders[bound][0]))
	}
	p.Tell(Finding{
		"drift", Warn, "holders use different bounds on the drift of clocks: " + strings.Join(all, ", "),
		"a holder with a low bound is safe only if all clocks keep it: give all processes one MaxClockDrift",
	})
}
