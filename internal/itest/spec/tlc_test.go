// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package spec_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/trace"
)

const root = "../../.."

// tlc skips the test where TLC is not installed.
func tlc(t *testing.T) {
	t.Helper()
	_, err := os.Stat(filepath.Join(root, ".bin/tlc/tla2tools.jar"))
	if err == nil {
		_, err = exec.LookPath("java")
	}
	if err != nil {
		enginetest.Missing(t, "TLC", fmt.Sprint("scripts/spec install installs it: ", err))
	}
}

// judge judges a trace by TLC, and returns the output of scripts/spec.
func judge(t *testing.T, events []trace.Event) (said string, ok bool) {
	t.Helper()
	var buf bytes.Buffer
	if err := trace.Write(&buf, events); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/spec"), "trace", file).CombinedOutput()
	said = string(out)
	// A trace of several locks is checked lock by lock.
	if refused := strings.Contains(said, ": refused: "); err != nil != refused || !refused && !strings.Contains(said, ": accepted") {
		t.Fatalf("scripts/spec: %v\n%s", err, said)
	}
	return said, err == nil
}

func accepted(t *testing.T, events []trace.Event) {
	t.Helper()
	said, ok := judge(t, events)
	if !ok {
		var text strings.Builder
		_ = trace.Write(&text, events) // a strings.Builder takes it all
		t.Errorf("%s\n%s", said, text.String())
	}
	t.Log(said)
}
