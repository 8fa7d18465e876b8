// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test runs the alert rules and the board of docs/guides/monitoring: on a
// Prometheus, on the metrics of real programs and of tenure exporter, under faults.
package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// guides has the files that users copy.
const guides = "../../../docs/guides/monitoring"

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(guides, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// program returns one of Prometheus' programs, and skips the test if it is not there.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv(enginetest.Required) != "" {
		t.Fatalf("there is no %s: scripts/setup installs it", name)
	}
	t.Skipf("there is no %s: make verify installs it, and so does scripts/setup", name)
	return ""
}
