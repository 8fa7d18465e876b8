// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestAPI runs the tests of package tenure, with their faults, on roots: each of their
// worlds has one for itself.
func TestAPI(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	enginetest.RunAPI(t, enginetest.BuildAPI(t), enginetest.Worlds{
		New: func(context.Context) (string, error) { return "/api-" + rand.Text(), nil },
		End: func(context.Context, string) error { return nil }, // the engine's data go with it
		Open: func(root string, pageSize int) (driver.Store, error) {
			s, err := New([]string{address}, &Options{Root: root})
			if err != nil {
				return nil, err
			}
			if pageSize > 0 {
				s.page = pageSize
			}
			return s, nil
		},
	})
}
