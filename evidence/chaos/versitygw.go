// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// versitygwEngine has tests of its own: its program takes long to build.
const versitygwEngine = "versitygw"

// newVersitygw is a bucket, behind two gateways over one folder: half of the replicas ask each.
// The faults of the engine are for the two of them in turn.
func newVersitygw(dir string) (server, error) {
	program, err := launcher.Program(versitygwEngine, "versitygw")
	if err != nil {
		return server{name: versitygwEngine}, err
	}
	folder := filepath.Join(dir, "buckets")
	return server{
		name: versitygwEngine, program: program, version: strings.TrimPrefix(filepath.Base(filepath.Dir(program)), "versitygw-"), members: 2,
		command: func(member int, ports []int) []string {
			_ = os.MkdirAll(filepath.Join(folder, replica.Table), 0o700) // without it the server says so, and ends
			return []string{
				program, "--port", fmt.Sprintf("127.0.0.1:%d", ports[member]), "--access", replica.BucketKey, "--secret", replica.BucketKey,
				"--region", replica.BucketRegion, "--health", "/health", "--keep-alive", "--quiet", "posix", folder,
			}
		},
		ready: func(ctx context.Context, _ int, address string) error {
			return answersHTTP(ctx, http.MethodGet, "http://"+address+"/health", func(body []byte) error { return says(body, "OK") })
		},
		leads:   func(_ context.Context, member int, _ string) bool { return member == 0 }, // neither does
		strikes: func(n int) int { return n % 2 },
		url:     func(addresses []string) string { return "s3:" + strings.Join(addresses, ",") },
	}, nil
}
