// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"errors"
	"strings"
	"testing"
)

// TestBuild: callers tell a tool that is not installed, and skip, from a build that has failed.
func TestBuild(t *testing.T) {
	if _, err := Build(t.Context(), "", "sh", "no-such-tool"); !errors.Is(err, ErrNoToolchain) {
		t.Errorf("without a tool: %v", err)
	}
	_, err := Build(t.Context(), "java/target/nothing", "sh")
	if err == nil || errors.Is(err, ErrNoToolchain) || !strings.Contains(err.Error(), "java/target/nothing") {
		t.Errorf("a target that there is not: %v", err)
	}
}
