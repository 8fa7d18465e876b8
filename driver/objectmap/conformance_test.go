// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func open(t testing.TB, b *bucket) *objectmap.Store {
	t.Helper()
	s, err := objectmap.New(&handle{bucket: b}, &objectmap.Options{PageSize: 7})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// harness returns one for a bucket.
func harness(t *testing.T, b *bucket) drivertest.Harness {
	raw := open(t, b)
	set := func(key, text string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.bodies[raw.ObjectName(key)] = text
	}
	read := func(key string) string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.bodies[raw.ObjectName(key)]
	}
	return drivertest.Harness{
		Open: func(t *testing.T) driver.Store {
			s := open(t, b)
			if err := s.Try(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		},
		Hang:                func(*testing.T) func() { return b.hang() },
		Raises:              true,
		TokensOutliveDelete: b.plainDelete,
		TimePrecision:       time.Nanosecond,
		LeasePrecision:      time.Nanosecond,
		Ops:                 200,
		Plant:               func(_ *testing.T, rec driver.Record) { set(rec.Key, recordcodec.Encode(rec)) },
		PlantUnreadable:     func(_ *testing.T, key string) { set(key, `{"key":"`+key+`","version":"v"}`) },
		PlantLater: func(_ *testing.T, key string) {
			set(key, strings.TrimSuffix(read(key), "}")+later+"}")
		},
		HasLater: func(_ *testing.T, key string) bool { return strings.Contains(read(key), later) },
		OlderState: func(t *testing.T, key string) driver.State {
			var older struct{ State driver.State }
			if err := json.Unmarshal([]byte(read(key)), &older); err != nil {
				t.Fatal(err)
			}
			return older.State
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() *bucket{
		"Conditional": func() *bucket { return newBucket("") },
		"PlainDelete": func() *bucket {
			b := newBucket("")
			b.plainDelete = true
			return b
		},
		// Each write comes twice at once, and again later; and each second one is refused
		// because another is under way.
		"DoubledAndBusy": func() *bucket {
			b := newBucket("doubles")
			b.plainDelete = true
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "Conditional" {
				enginetest.MakeVerify(t)
			}
			drivertest.Run(t, func(t *testing.T) drivertest.Harness { return harness(t, make()) })
		})
	}
}
