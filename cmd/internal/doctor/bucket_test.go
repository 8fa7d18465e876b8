// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// examined returns what the doctor finds of a bucket, a line each.
func examined(t *testing.T, b *enginetest.Bucket) string {
	t.Helper()
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	at, err := storeurl.Parse("s3://" + b.Name + "/locks?region=local&path_style=1&endpoint=" + url.QueryEscape(b.URL))
	if err != nil {
		t.Fatal(err)
	}
	options, err := flags.WithDefaults(tenure.Options{LeaseDuration: time.Minute, RefreshPeriod: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	_, _ = doctor.Examine(t.Context(), doctor.Patient{ // what is wrong is among the findings
		Engine: doctor.EngineOf(at), Open: at.Open, Options: options,
		Tell: func(f doctor.Finding) { fmt.Fprintf(&lines, "%s %s: %s; %s\n", f.Level, f.Check, f.Finding, f.Advice) },
	})
	return lines.String()
}

func rule(status, rest string) string {
	return `<LifecycleConfiguration><Rule><ID>tidy</ID><Status>` + status + `</Status>` + rest + `</Rule></LifecycleConfiguration>`
}

func TestBucket(t *testing.T) {
	const expires = `<Expiration><Days>7</Days></Expiration>`
	for name, tc := range map[string]struct {
		lifecycle, versioning string
		fault                 enginetest.BucketFault
		wants                 []string
	}{
		"sound": {wants: []string{
			"ok lifecycle: the bucket has no rules", "ok versioning: the bucket keeps no old versions", "ok conditions: one of 16 writers won each of 40 races",
			"ok price: a month takes 216000 writes for each lock that is held, or session, and about 648000 reads for each process that waits; ",
			"ok store: can be read and written", "ok encryption: the connection is not encrypted",
		}},
		"rule for all":      {lifecycle: rule("Enabled", expires+`<Filter/>`), wants: []string{`bad lifecycle: rule "tidy" removes objects below "locks/"`}},
		"rule for a part":   {lifecycle: rule("Enabled", expires+`<Filter><Prefix>locks/r/</Prefix></Filter>`), wants: []string{`bad lifecycle: rule "tidy" removes`}},
		"old rule":          {lifecycle: rule("Enabled", expires+`<Prefix>lo</Prefix>`), wants: []string{`bad lifecycle: rule "tidy" removes`}},
		"rule that moves":   {lifecycle: rule("Enabled", `<Filter><Prefix>l</Prefix></Filter><Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>`), wants: []string{`bad lifecycle: rule "tidy" moves`}},
		"rule elsewhere":    {lifecycle: rule("Enabled", expires+`<Filter><Prefix>logs/</Prefix></Filter>`), wants: []string{"ok lifecycle: no rule removes or moves"}},
		"rule for tags":     {lifecycle: rule("Enabled", expires+`<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>`), wants: []string{"ok lifecycle: no rule removes or moves"}},
		"rule that is off":  {lifecycle: rule("Disabled", expires+`<Filter/>`), wants: []string{"ok lifecycle: no rule removes or moves"}},
		"versions are kept": {versioning: `<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`, wants: []string{"warn versioning: the bucket keeps each heartbeat: 216000 versions a month"}},
		"races":             {fault: enginetest.Races, wants: []string{"bad conditions: round ", " of 16 writers "}},
		"no conditions":     {fault: enginetest.IgnoresConditions, wants: []string{"bad conditions: ", "bad store: cannot be written: the server wrote over an object that it was to create only if absent"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := enginetest.NewBucket(t)
			if tc.lifecycle != "" {
				b.Configure("lifecycle", tc.lifecycle)
			}
			if tc.versioning != "" {
				b.Configure("versioning", tc.versioning)
			}
			b.Break(tc.fault, nil)
			got := examined(t, b)
			for _, want := range tc.wants {
				if !strings.Contains(got, want) {
					t.Errorf("there is no %q in\n%s", want, got)
				}
			}
			if left := b.Names(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
