// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// TestAPI runs the tests of package tenure, with their faults, on prefixes: each of their
// worlds has one for itself.
func TestAPI(t *testing.T) { runAPI(t, newSite(t)) }

func TestVersitygwAPI(t *testing.T) {
	runAPI(t, siteAt(enginetest.StartVersitygw(t, 1, "locks")[0].URL))
}

func runAPI(t *testing.T, s site) {
	client := s.client(t)
	keeps := s.open(t, "").KeepsTokens()
	enginetest.RunAPI(t, enginetest.BuildAPI(t), enginetest.Worlds{
		TokensOutliveDelete: keeps,
		New:                 func(context.Context) (string, error) { return buckets.NewPrefix(), nil },
		End: func(ctx context.Context, prefix string) error {
			o := newObjects(client, s.bucket)
			for {
				names, _, err := o.Names(ctx, prefix, "")
				if err != nil || len(names) == 0 {
					return err
				}
				for _, name := range names {
					if err := o.Delete(ctx, name, ""); err != nil {
						return err
					}
				}
			}
		},
		Open: func(prefix string, pageSize int) (driver.Store, error) {
			return Open(t.Context(), client, s.bucket, &Options{Prefix: prefix, PageSize: pageSize})
		},
	})
}
