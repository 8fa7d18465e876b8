// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
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
	s, err := installed(versitygwEngine)
	folder := filepath.Join(dir, "buckets")
	s.members = 2
	s.launch = func(member int, ports []int) (launcher.Server, error) {
		return launcher.Versitygw(folder, ports[member], replica.Table)
	}
	s.leads = func(_ context.Context, member int, _ string) bool { return member == 0 } // neither does
	s.strikes = func(n int) int { return n % 2 }
	s.url = func(addresses []string) string { return "s3:" + strings.Join(addresses, ",") }
	return s, err
}
