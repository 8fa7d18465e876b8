// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestAPI runs the tests of package tenure, with their faults, on prefixes: each of their
// worlds has one for itself.
func TestAPI(t *testing.T) {
	file := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	config, namespace := mustConfig(t, file, "admin"), newNamespace(t, file)
	admin := mustOpen(t, config, namespace, nil).calls
	enginetest.RunAPI(t, enginetest.BuildAPI(t), enginetest.Worlds{
		New: func(context.Context) (string, error) { return strings.ToLower(rand.Text()) + ".", nil },
		End: func(ctx context.Context, prefix string) error {
			query := url.Values{"labelSelector": {labelStore + "=" + strings.TrimSuffix(prefix, ".")}}
			for _, of := range []resource{leases, configMaps} {
				if err := admin.do(ctx, admin.request(http.MethodDelete, of, namespace, "", query), nil, nil); err != nil {
					return err
				}
			}
			return nil
		},
		Open: func(prefix string, pageSize int) (driver.Store, error) {
			s, err := New(config, namespace, &Options{Prefix: prefix})
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
