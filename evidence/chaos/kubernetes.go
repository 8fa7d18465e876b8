// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// kubernetesEngine has tests of its own: its program takes more than 5 minutes to build.
const kubernetesEngine = "kubernetes"

// The members of Kubernetes are not alike: replicas ask the API server, which asks the etcd.
const (
	apiServer = iota
	itsEtcd
)

// newKubernetes is an API server with an etcd of its own. The faults of the engine are for
// the two of them in turn.
func newKubernetes(dir string) (server, error) {
	s, err := installed(kubernetesEngine)
	if err != nil {
		return s, err
	}
	etcd, err := newEtcd(dir, 1)
	if err != nil {
		return s, err
	}
	folder := filepath.Join(dir, "apiserver")
	s.members = 2
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		if member == itsEtcd {
			return etcd.launch(0, ports[itsEtcd:])
		}
		if err := os.MkdirAll(folder, 0o700); err != nil { // without it the server says so, and ends
			return launcher.Server{}, err
		}
		return launcher.Kubernetes(folder, ports[apiServer], fmt.Sprintf("http://127.0.0.1:%d", ports[itsEtcd]))
	}
	s.begin = func(_ context.Context, addresses []string) error {
		_, err := launcher.AskKubernetes(addresses[apiServer], "admin", "/api/v1/namespaces",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+replica.Namespace+`"}}`)
		return err
	}
	s.leads = func(_ context.Context, member int, _ string) bool { return member == apiServer }
	s.strikes = func(n int) int { return n % 2 }
	s.url = func(addresses []string) string {
		return "kubernetes:" + filepath.Join(folder, "kubeconfig") + "," + addresses[apiServer]
	}
	return s, nil
}
