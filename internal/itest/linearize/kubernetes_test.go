// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package linearize_test

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/itest/linearize"
	"github.com/tenurelock/tenure/k8sstore"
)

// The clients are at two API servers, which have a memory each. What stands in the way of a
// write is read after the server has refused it.
func TestKubernetes(t *testing.T) {
	one := enginetest.StartKubernetes(t)
	servers, next := []*enginetest.KubernetesServer{one, one.Beside(t)}, 0
	namespace := enginetest.KubernetesNamespace(t, one.Kubeconfig)
	linearize.Check(t, func(t *testing.T) driver.Store {
		next++
		config, _, err := k8sstore.Config(servers[next%len(servers)].Kubeconfig, "admin")
		if err != nil {
			t.Fatal(err)
		}
		s, err := k8sstore.Open(t.Context(), config, namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}, &linearize.Options{ConflictsReadLater: true})
}
