// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
)

func principal(t *testing.T, grants ...access.Grant) access.Principal {
	t.Helper()
	p, err := access.NewPrincipal("ci", grants...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMay(t *testing.T) {
	p := principal(t, access.Grant{Right: access.Hold, Prefix: "jobs/"},
		access.Grant{Right: access.Ask, Prefix: "jobs/nightly"})
	all := principal(t, access.Grant{Right: access.Admin})
	for _, c := range []struct {
		p     access.Principal
		right access.Right
		name  string
		want  bool
	}{
		{p, access.Hold, "jobs/x", true},
		{p, access.Read, "jobs/x", true},
		{p, access.Hold, "jobs", false},
		{p, access.Hold, "other", false},
		{p, access.Hold, "", false},
		{p, access.Ask, "jobs/x", false},
		{p, access.Ask, "jobs/nightly", true},
		{p, access.Ask, "jobs/nightly:once", true},
		{p, access.Revoke, "jobs/nightly", false},
		{p, access.Admin, "jobs/nightly", false},
		{all, access.Revoke, "x", true},
		{all, access.Admin, "x", true},
		{all, "anything", "x", false},
		{all, access.Read, "tenure/history/x/0000000000000000001", false},
		{all, access.Admin, "tenure/session/x", false},
		{access.Principal{}, access.Read, "x", false},
	} {
		if got := c.p.May(c.right, c.name); got != c.want {
			t.Errorf("May(%q, %q) = %v, want %v", c.right, c.name, got, c.want)
		}
	}
}

// A name that is derived is reached by the right to the name that it is derived from.
func TestDerivedNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{
		once.LockName("a:b"), once.EveryLockName("a:b"),
		semaphore.LockName("a:b", 3), semaphore.SizeName("a:b"), "a:b:line",
		rwlock.GateName("a:b"), rwlock.LineName("a:b"), rwlock.SizeName("a:b"), rwlock.SlotName("a:b", 7),
		shard.LockName("a:b", "p:lead"), shard.CoordinatorLockName("a:b"), shard.MembershipName("a:b"), shard.SpecName("a:b"),
		shard.MemberName("a:b", 7),
		once.LockName(shard.LockName("a:b", "p")),
	} {
		if seen[name] {
			t.Errorf("two kinds have a lock of the name %q", name)
		}
		seen[name] = true
		if got := access.Base(name); got != "a:b" {
			t.Errorf("Base(%q) = %q, want a:b", name, got)
		}
		if p := principal(t, access.Grant{Right: access.Read, Prefix: "a:b"}); !p.May(access.Read, name) {
			t.Errorf("a principal that may read a:b may not read %q", name)
		}
		if _, err := access.NewPrincipal("ci", access.Grant{Right: access.Read, Prefix: name}); err == nil {
			t.Errorf("a right to %q alone is accepted", name)
		}
	}
	// This prefix is not within a derived name, but derived names begin with it.
	if p := principal(t, access.Grant{Right: access.Read, Prefix: "a:"}); p.May(access.Read, "a:once") ||
		!p.May(access.Read, "a:b:once") {
		t.Error("a right to a: must cover a:b:once, and not the ledger of a")
	}
	for _, name := range []string{"", "plain", ":once", "a:onceler", ":slot/3"} {
		if got := access.Base(name); got != name {
			t.Errorf("Base(%q) = %q, want the same", name, got)
		}
	}
}

func TestPrefixes(t *testing.T) {
	p := principal(t,
		access.Grant{Right: access.Read, Prefix: "b/"}, access.Grant{Right: access.Hold, Prefix: "a/x"},
		access.Grant{Right: access.Read, Prefix: "a/"}, access.Grant{Right: access.Ask, Prefix: "c/"})
	for _, c := range []struct {
		prefix string
		want   []string
	}{
		{"", []string{"a/", "b/"}},
		{"a", []string{"a/"}},
		{"a/xyz", []string{"a/xyz"}},
		{"c", nil},
		{"c/", nil},
	} {
		if got := p.Prefixes(access.Read, c.prefix); !slices.Equal(got, c.want) {
			t.Errorf("Prefixes(read, %q) = %q, want %q", c.prefix, got, c.want)
		}
	}
}

func TestGrantsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		grant access.Grant
		want  string
	}{
		{access.Grant{Right: "write", Prefix: "a"}, "use read, hold, ask, revoke or admin"},
		{access.Grant{Right: access.Read, Prefix: "tenure/session/"}, "records of Tenure itself"},
		{access.Grant{Right: access.Read, Prefix: "a*"}, "asterisk"},
		{access.Grant{Right: access.Read, Prefix: "\xff"}, "UTF-8"},
		{access.Grant{Right: access.Read, Prefix: strings.Repeat("a", 1025)}, "1025 bytes"},
		{access.Grant{Right: access.Read, Prefix: "nightly:once"}, `derived from "nightly"`},
	} {
		if _, err := access.NewPrincipal("ci", c.grant); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error with %q", c.grant, err, c.want)
		}
	}
	for _, name := range []string{"", "a b", "a@b", "a\nb", "\xff", "a\u202eb", strings.Repeat("a", 201)} {
		if _, err := access.NewPrincipal(name); err == nil {
			t.Errorf("principal %q is accepted", name)
		}
	}
}

func TestAuditLinesAreOneLineEach(t *testing.T) {
	var out bytes.Buffer
	access.Audit(slog.New(slog.NewTextHandler(&out, nil)))(t.Context(), access.Act{
		Principal: "ci", Via: "api", Action: "revoke", Lock: "a\nlevel=ERROR msg=forged",
		Reason: "x\u202e\x1b[2J", Outcome: "done",
	})
	line := out.String()
	for _, bad := range []string{"\nlevel=ERROR", "\u202e", "\x1b"} {
		if strings.Contains(line, bad) {
			t.Errorf("the line has %q: %q", bad, line)
		}
	}
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, "principal=ci") ||
		!strings.Contains(line, "action=revoke") {
		t.Errorf("not one line with who did what: %q", line)
	}
	access.Audit(nil)(t.Context(), access.Act{}) // does nothing

	// Not every handler escapes what it is given.
	var bare bareHandler
	access.Audit(slog.New(&bare))(t.Context(), access.Act{
		Principal: "ci", Action: "revoke", Lock: "a\nb", Reason: "x\u202ey",
	})
	if want := `revoke a\nb x\u202ey`; !strings.Contains(string(bare), want) {
		t.Errorf("a handler that escapes nothing writes %q, want %s", bare, want)
	}
}

// bareHandler writes the values of a record as they are.
type bareHandler string

func (h *bareHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		*h += bareHandler(" " + a.Value.String())
		return true
	})
	return nil
}

func (h *bareHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *bareHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *bareHandler) WithGroup(string) slog.Handler            { return h }

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain, \"quoted\" and grün": "plain, \"quoted\" and grün",
		"a\nb":                       `a\nb`,
		`a\nb`:                       `a\\nb`,
		"\u202e\u200b\xff\x00":       `\u202e\u200b\xff\x00`,
	} {
		if got := access.Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
	}
	if got := access.Printable(strings.Repeat("x", 1<<20)); len(got) > 2000 {
		t.Errorf("a text of a megabyte is shown with %d bytes", len(got))
	}
}
