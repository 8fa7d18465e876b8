// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testGet(t *testing.T, e *env) {
	t.Run("Absent", func(t *testing.T) {
		for _, c := range []driver.Consistency{driver.Strong, driver.Eventual} {
			if rec, err := e.clients[0].Get(t.Context(), e.key(), c); !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("Get of an absent key = %s, %v; want ErrNotFound", brief(rec), err)
			}
		}
	})

	// A strong read sees each write that was answered, whoever made it.
	t.Run("Strong", func(t *testing.T) {
		rec := e.claim(t, e.clients[0], e.held(e.key()))
		for i := range 30 {
			e.wantStored(t, rec)
			rec = e.swap(t, e.clients[i%len(e.clients)], rec, e.beat(rec))
		}
	})

	t.Run("Eventual", func(t *testing.T) {
		rec := e.claim(t, e.clients[0], e.held(e.key()))
		for i := range 30 {
			rec = e.swap(t, e.clients[0], rec, e.beat(rec))
			reader := e.clients[i%len(e.clients)]
			e.eventually(t, func() string {
				got, err := reader.Get(t.Context(), rec.Key, driver.Eventual)
				if err != nil {
					return err.Error()
				}
				return e.diff(got, rec)
			})
		}
	})
}
