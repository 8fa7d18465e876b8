// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	proc.Play(serve.Roles) // this binary is the program that holds the locks
	os.Exit(m.Run())
}

// TestQuick holds some locks for a moment.
func TestQuick(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	var out strings.Builder
	if err := run(t.Context(), []string{"-quick", "-engine", e.URL, "-locks", "200", "-for", "2s"}, &out, t.Output()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"200 locks under one session", "locks lost                         0\n", "as it must be"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

func TestRefusals(t *testing.T) {
	if err := run(t.Context(), []string{"-engine", ""}, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), "there is no engine") {
		t.Errorf("without an engine: %v", err)
	}
}
