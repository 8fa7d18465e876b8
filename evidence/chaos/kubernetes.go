// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	program, err := launcher.Program(kubernetesEngine, "kube-apiserver")
	if err != nil {
		return server{name: kubernetesEngine}, err
	}
	etcd, err := newEtcd(dir, 1)
	if err != nil {
		return server{name: kubernetesEngine}, err
	}
	folder := filepath.Join(dir, "apiserver")
	// The server makes its certificate, anew with each round.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // it is a server of this program
	}}
	ask := func(ctx context.Context, method, address, path, body, want string) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer admin")
		request.Header.Set("Content-Type", "application/json")
		return answers(client, request, func(body []byte) error { return says(body, want) })
	}
	return server{
		name: kubernetesEngine, program: program, version: strings.TrimPrefix(filepath.Base(filepath.Dir(program)), "kubernetes-"), members: 2,
		command: func(member int, ports []int) []string {
			if member == itsEtcd {
				return etcd.command(0, ports[itsEtcd:])
			}
			_ = os.MkdirAll(folder, 0o700) // without it the server says so, and ends
			return []string{program, folder, fmt.Sprint(ports[apiServer]), fmt.Sprintf("http://127.0.0.1:%d", ports[itsEtcd])}
		},
		ready: func(ctx context.Context, member int, address string) error {
			if member == itsEtcd {
				return etcd.ready(ctx, 0, address)
			}
			return ask(ctx, http.MethodGet, address, "/readyz", "", "ok")
		},
		begin: func(ctx context.Context, addresses []string) error {
			return ask(ctx, http.MethodPost, addresses[apiServer], "/api/v1/namespaces",
				`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+replica.Namespace+`"}}`, replica.Namespace)
		},
		leads:   func(_ context.Context, member int, _ string) bool { return member == apiServer },
		strikes: func(n int) int { return n % 2 },
		url: func(addresses []string) string {
			return "kubernetes:" + filepath.Join(folder, "kubeconfig") + "," + addresses[apiServer]
		},
	}, nil
}
