// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/drivertest"
)

// envFault names the fault in a process that TestBrokenIsFound started.
const envFault = "OBJECTMAP_FAULT"

// TestBroken runs the suite on a store that trusts a broken bucket, and so fails, in a
// process that expects that.
func TestBroken(t *testing.T) {
	fault := os.Getenv(envFault)
	if fault == "" {
		return // this is no process of TestBrokenIsFound
	}
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		b := newBucket(fault)
		h := harness(t, b)
		h.TokensOutliveDelete = true // of the trust
		h.Patience = 300 * time.Millisecond
		h.Open = func(t *testing.T) driver.Store {
			s, err := objectmap.New(&handle{bucket: b}, &objectmap.Options{Trust: true})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		return h
	})
}

// TestBrokenIsFound: the suite finds a text whose tag does not cover the version, and
// engines that a trial would have refused.
func TestBrokenIsFound(t *testing.T) {
	for fault, check := range map[string]string{
		"tag without the version":          "Condition/VersionAlone",
		"ignores conditions":               "Condition/StaleVersion",
		"keeps the tag":                    "Condition/StaleVersion",
		"creates on If-Match":              "Session/Late",
		"drops what is unknown":            "Versions/LaterKept",
		"drops what is unknown at a raise": "Versions/LaterKept",
		"rests as it holds":                "Versions/Resting",
		"reads what is damaged as zero":    "Unreadable",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			concern, _, _ := strings.Cut(check, "/")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$/^"+concern+"$", "-test.short", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), envFault+"="+fault)
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
				t.Fatalf("the suite passed it (%v)", err)
			}
			if !strings.Contains(string(out), "--- FAIL: TestBroken/"+check) {
				t.Errorf("%s did not fail:\n%s", check, out)
			}
		})
	}
}
