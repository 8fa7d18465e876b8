// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

func storeOf(t testing.TB, options Options) *Store {
	t.Helper()
	o, err := options.resolve()
	if err != nil {
		t.Fatal(err)
	}
	return &Store{namespace: "default", options: o}
}

func TestNames(t *testing.T) {
	own, shared := storeOf(t, Options{}), storeOf(t, Options{SharedLease: true})
	for _, c := range []struct{ key, own, shared string }{
		{"reports", "tenure.reports", "reports"},
		{"nightly-report-2", "tenure.nightly-report-2", "nightly-report-2"},
		{"80807133.example.com", "tenure.80807133-example-com--", "80807133.example.com"},
		{"a--b", "tenure.a-b--", "a--b"},
		{"-a", "tenure.a--", "tenure.a--"},
		{"a-", "tenure.a--", "tenure.a--"},
		{"A", "tenure.a--", "tenure.a--"},
		{"team/nightly", "tenure.team-nightly--", "tenure.team-nightly--"},
		{"Grüße", "tenure.gr-e--", "tenure.gr-e--"},
		{"世界", "tenure.key--", "tenure.key--"},
		{"tenure.reports", "tenure.tenure-reports--", "tenure.tenure-reports--"}, // else it would be the Lease of another key
		{strings.Repeat("k", maxPlain), "tenure." + strings.Repeat("k", maxPlain), strings.Repeat("k", maxPlain)},
		{strings.Repeat("k", maxPlain+1), "tenure." + strings.Repeat("k", maxSlug) + "--", strings.Repeat("k", maxPlain+1)},
		{strings.Repeat("k", maxObjectName+1), "tenure." + strings.Repeat("k", maxSlug) + "--", "tenure." + strings.Repeat("k", maxSlug) + "--"},
		{driver.SessionKey("0123"), "tenure.tenure-session-0123--", "tenure.tenure-session-0123--"},
	} {
		for s, want := range map[*Store]string{own: c.own, shared: c.shared} {
			got := s.object(c.key)
			if strings.HasSuffix(want, "--") {
				want += hashOf(c.key)
			}
			if got != want || !subdomainForm().MatchString(got) || len(got) > maxObjectName {
				t.Errorf("%q, shared %t: %q, want %q", c.key, s.options.SharedLease, got, want)
			}
		}
	}
	for key, want := range map[string]string{
		"reports": "lock", "tenure/session/x": "session", "tenure/history/a/7": "history", "tenure/x": "own", "tenure/": "own", "tenure/UP/x": "own",
	} {
		if got := kindOf(key); got != want {
			t.Errorf("kind of %q: %q, want %q", key, got, want)
		}
	}
	for prefix, want := range map[string]string{
		"": "", "t": "", "tenure/": "", "tenure/ses": "", "tenure/session/": "session", "r": "lock", "tenured": "lock",
	} {
		if got := kindsOf(prefix); got != want {
			t.Errorf("kinds of %q: %q, want %q", prefix, got, want)
		}
	}
}

// FuzzNames: no two keys have one name, in stores whose prefixes begin alike, and the
// API server accepts each name.
func FuzzNames(f *testing.F) {
	keys := []string{"a", "A", "a-b", "a--b", "b.x", "tenure.a", "a/b", "a\x00", "Ä", strings.Repeat("k", 200), "a--x5gx5sqs7dvw6snlpdycfkbp23xusq3q"}
	for _, a := range keys {
		for _, b := range keys {
			f.Add(a, b)
		}
	}
	stores := []*Store{storeOf(f, Options{Prefix: "tenure."}), storeOf(f, Options{Prefix: "tenure.b."}), storeOf(f, Options{Prefix: "tenure.", SharedLease: true})}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || !utf8.ValidString(a+b) || len(a) > driver.MaxKeyLen || len(b) > driver.MaxKeyLen {
			t.Skip("no keys")
		}
		for i, s := range stores {
			name := s.object(a)
			if len(name) > maxObjectName || !subdomainForm().MatchString(name) {
				t.Errorf("%q has the name %q", a, name)
			}
			if a != b && name == s.object(b) {
				t.Errorf("%q and %q have the name %q", a, b, name)
			}
			if i == 0 && name == stores[1].object(b) {
				t.Errorf("%q and, with another prefix, %q have the name %q", a, b, name)
			}
			if kinds := kindsOf(a[:len(a)/2]); kinds != "" && kinds != kindOf(a) {
				t.Errorf("%q is not listed by its beginning", a)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	for _, prefix := range []string{"locks", ".", "Locks.", "a..", "-a.", strings.Repeat("x", 60) + "."} {
		if _, err := (&Options{Prefix: prefix}).resolve(); err == nil || !strings.Contains(err.Error(), "must end with a dot") {
			t.Errorf("prefix %.20q: %v", prefix, err)
		}
	}
	if _, err := New(nil, "default", nil); err == nil {
		t.Error("no config, no error")
	}
}
