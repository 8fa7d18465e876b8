// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// Findings returns findings as lines, "LEVEL CHECK: FINDING; ADVICE" each, and reports those of
// the wanted pieces of lines that are missing. A piece that begins with "!" must be missing.
func Findings(t *testing.T, all []driver.Finding, want ...string) (lines string) {
	t.Helper()
	for _, f := range all {
		lines += fmt.Sprintf("%s %s: %s; %s\n", f.Level, f.Check, f.Finding, f.Advice)
	}
	for _, w := range want {
		if unwanted, not := strings.CutPrefix(w, "!"); strings.Contains(lines, unwanted) == not {
			t.Errorf("%q is wanted in:\n%s", w, lines)
		}
	}
	return lines
}
