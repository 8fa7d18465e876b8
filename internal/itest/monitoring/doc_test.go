// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test runs the alert rules and the queries of the board in
// docs/guides/monitoring on the metrics of programs and of an exporter, under faults.
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

// program returns promtool, and skips the test if it is not there.
func program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		enginetest.Missing(t, "promtool", "scripts/setup installs it")
	}
	return path
}
