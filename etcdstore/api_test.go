// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"crypto/rand"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestAPI runs the tests of package tenure, with their faults, on prefixes: each of their
// worlds has one for itself.
func TestAPI(t *testing.T) {
	client := mustOpen(t, "api/", enginetest.Shared(t, enginetest.Etcd, "etcd")).client
	enginetest.RunAPI(t, enginetest.BuildAPI(t), enginetest.Worlds{
		New: func(context.Context) (string, error) { return "api/" + rand.Text() + "/", nil },
		End: func(ctx context.Context, prefix string) error {
			_, err := client.Delete(ctx, prefix, clientv3.WithPrefix())
			return err
		},
		Open: func(prefix string, pageSize int) (driver.Store, error) {
			s, err := New(client, &Options{Prefix: prefix})
			if err != nil {
				return nil, err
			}
			if pageSize > 0 {
				s.page = int64(pageSize)
			}
			return s, nil
		},
	})
}
