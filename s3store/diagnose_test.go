// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func rule(status, rest string) string {
	return `<LifecycleConfiguration><Rule><ID>tidy</ID><Status>` + status + `</Status>` + rest + `</Rule></LifecycleConfiguration>`
}

func TestDiagnose(t *testing.T) {
	const expires = `<Expiration><Days>7</Days></Expiration>`
	for name, tc := range map[string]struct {
		lifecycle, versioning string
		fault                 enginetest.BucketFault
		wants                 []string
	}{
		"sound": {wants: []string{
			"ok lifecycle: the bucket has no rules", "ok versioning: the bucket keeps no old versions", "ok conditions: one of 16 writers won each of 40 races",
			"ok price: a month takes 216000 writes for each lock that is held, or session, and about 648000 reads for each process that waits; ",
			"ok encryption: the connection is not encrypted, and does not leave this machine",
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
		"no conditions":     {fault: enginetest.IgnoresConditions, wants: []string{"bad conditions: "}},
	} {
		t.Run(name, func(t *testing.T) {
			b := enginetest.NewBucket(t)
			if tc.lifecycle != "" {
				b.Configure("lifecycle", tc.lifecycle)
			}
			if tc.versioning != "" {
				b.Configure("versioning", tc.versioning)
			}
			b.Break(tc.fault)
			s, err := New(siteAt(b.URL).client(t), b.Name, &Options{Prefix: "locks/"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			all := s.Diagnose(t.Context(), driver.Timing{Heartbeat: 12 * time.Second, Refresh: 5 * time.Second})
			enginetest.Findings(t, all, tc.wants...)
			if left := b.Names(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
