// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/etcdstore"
)

// TestProxyIsNamed: gRPC goes by HTTPS_PROXY. A process reads the variable once, so the test
// has one of its own.
func TestProxyIsNamed(t *testing.T) {
	if os.Getenv("TENURE_TEST_PROXY") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyIsNamed$")
		cmd.Env = append(os.Environ(), "TENURE_TEST_PROXY=1", "HTTPS_PROXY=http://user:secret@127.0.0.1:9", "NO_PROXY=", "no_proxy=", "https_proxy=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	_, err := etcdstore.Open(ctx, clientv3.Config{Endpoints: []string{"http://etcd.invalid:2379"}}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "by the proxy 127.0.0.1:9 of HTTPS_PROXY") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
