// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package access says which principal of the lock service may do what to which lock.
//
// A [Principal] is a program or a person, known by a secret or a client certificate. It
// has rights, each for the names that begin with a prefix. Package server knows them, and the
// dashboard asks it, so that both refuse the same.
//
// A right covers what is derived from a name as well: its history, the ledgers of package
// once (NAME:once), the slots of a semaphore, the locks of readers and writers, the partitions
// of shards. A derived record is
// reached by the right to the name that it is derived from, and by no other: see [Base].
package access

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/text"
)

// Base returns the name that a lock's name is derived from, and the name itself if it is
// not derived: "nightly" for "nightly:once", "orders" for "orders:part/7". Packages once,
// semaphore, rwlock and shard make several locks of one name. Where one could read a name in
// two ways, it returns the shorter base.
func Base(name string) string { return text.Base(name) }

// IsTrial says whether a name is the lock that tenure doctor uses to try a service. The service
// deletes its record at the release: no one else takes it, and no fence sees its token.
func IsTrial(name string) bool { return strings.HasSuffix(name, text.TrialSuffix) }

// Right is what a principal may do.
type Right string

// The rights. Each is for names with a prefix.
const (
	Read   Right = "read"   // see locks, their history and events
	Hold   Right = "hold"   // acquire, keep and release locks, and see their data; includes Read
	Ask    Right = "ask"    // ask a holder to step down or hand over; release a dead holder's lock
	Revoke Right = "revoke" // take a lock from a holder that is alive
	Admin  Right = "admin"  // all of these
)

// Rights are all rights there are.
func Rights() []Right { return []Right{Read, Hold, Ask, Revoke, Admin} }

// includes says whether right r includes the other right.
func (r Right) includes(other Right) bool {
	return slices.Contains(Rights(), other) && (r == other || r == Admin || r == Hold && other == Read)
}

// Grant is a right to all names that begin with Prefix. An empty prefix means all names.
type Grant struct {
	Right  Right
	Prefix string
}

// Validate returns an error that says which rule the grant breaks.
func (g Grant) Validate() error {
	switch {
	case !slices.Contains(Rights(), g.Right):
		return fmt.Errorf("right %.40q is not known: use read, hold, ask, revoke or admin", string(g.Right))
	case len(g.Prefix) > driver.MaxNameLen:
		return fmt.Errorf("prefix %.20q... has %d bytes: a lock name has at most %d",
			g.Prefix, len(g.Prefix), driver.MaxNameLen)
	case !utf8.ValidString(g.Prefix):
		return fmt.Errorf("prefix %.80q is not valid UTF-8", g.Prefix)
	case strings.HasPrefix(g.Prefix, driver.OwnPrefix):
		return fmt.Errorf("prefix %.40q begins with %q: such names are for records of Tenure itself",
			g.Prefix, driver.OwnPrefix)
	case strings.HasSuffix(g.Prefix, "*"):
		return fmt.Errorf("prefix %.80q ends with an asterisk: a prefix covers all names that begin with it; write %s: "+
			"with nothing after it for all names", g.Prefix, g.Right)
	case Base(g.Prefix) != g.Prefix:
		return fmt.Errorf("prefix %.80q is within the names derived from %.80q: give the right to that name, "+
			"which covers them", g.Prefix, Base(g.Prefix))
	}
	return nil
}

// Principal is the caller of a call. The zero value has no name and no rights. It does
// not change, and may be used concurrently.
type Principal struct {
	name   string
	grants []Grant
}

// maxNameLen is the longest name of a principal in bytes. Each record has it before the host.
const maxNameLen = 200

// NewPrincipal returns a principal with these rights. The error says which rule the name
// or a grant breaks.
func NewPrincipal(name string, grants ...Grant) (Principal, error) {
	const what = "name of the principal"
	if err := cmp.Or(text.CheckNotEmpty(what, name, maxNameLen), text.Check(what, name, maxNameLen)); err != nil {
		return Principal{}, err
	}
	if strings.ContainsAny(name, " @") {
		return Principal{}, fmt.Errorf("%s %q contains a space or an @", what, name)
	}
	for _, g := range grants {
		if err := g.Validate(); err != nil {
			return Principal{}, err
		}
	}
	return Principal{name: name, grants: slices.Clone(grants)}, nil
}

// Name returns the name of the principal.
func (p Principal) Name() string { return p.name }

// Grants returns the rights of the principal.
func (p Principal) Grants() []Grant { return slices.Clone(p.grants) }

// May says whether the principal has the right to the lock of that name. No principal has
// a right to Tenure's own records.
func (p Principal) May(right Right, name string) bool {
	if name == "" || strings.HasPrefix(name, driver.OwnPrefix) {
		return false
	}
	base := Base(name)
	return slices.ContainsFunc(p.grants, func(g Grant) bool {
		return g.Right.includes(right) && strings.HasPrefix(base, g.Prefix)
	})
}

// Prefixes returns the prefixes to list, to find all locks below a prefix to which the
// principal has the right: prefixes that begin with prefix, or prefix itself. No prefix is
// below another one. They are only a bound: ask [Principal.May] for each name found.
func (p Principal) Prefixes(right Right, prefix string) []string {
	var found []string
	for _, g := range p.grants {
		switch {
		case !g.Right.includes(right):
		case strings.HasPrefix(prefix, g.Prefix):
			return []string{prefix}
		case strings.HasPrefix(g.Prefix, prefix):
			found = append(found, g.Prefix)
		}
	}
	slices.Sort(found)
	var least []string
	for _, f := range found { // a shorter prefix comes before the prefixes below it
		if n := len(least); n == 0 || !strings.HasPrefix(f, least[n-1]) {
			least = append(least, f)
		}
	}
	return least
}

// Network returns the key of limits per address: the address or, for IPv6, its 64-bit network,
// which one customer has. A text that is not an IP address is returned unchanged.
func Network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is6() {
		return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return ip.String()
}

// Act is what an operator did, or tried to do.
type Act struct {
	// Principal is whose act it is, and Via the way it came: "api", "dashboard", or "file"
	// for a change of the file of principals.
	Principal, Via string
	// Action is what was done, such as "step-down" or "revoke".
	Action string
	// Lock is the name of the lock. To and ToLabel are the target of a hand-over: an owner,
	// or a label.
	Lock, To, ToLabel string
	// Reason is what the operator has given as the reason.
	Reason string
	// Outcome is "done", or the kind of the problem, such as "forbidden" or "unanswered".
	Outcome string
	// Detail says more of an outcome, such as the text of an error.
	Detail string
}

// Audit returns a function that writes a line for each act to the logger, at the level
// Info. Text that an operator or a store has given is written as [Printable] has it, so that
// a line cannot look like two. The function may be called concurrently. With a nil logger it
// does nothing.
func Audit(logger *slog.Logger) func(context.Context, Act) {
	if logger == nil {
		return func(context.Context, Act) {}
	}
	return func(ctx context.Context, act Act) {
		var attrs []slog.Attr
		for _, of := range []struct{ name, text string }{
			{"principal", act.Principal},
			{"via", act.Via},
			{"action", act.Action},
			{"lock", act.Lock},
			{"to", act.To},
			{"to_label", act.ToLabel},
			{"reason", act.Reason},
			{"outcome", act.Outcome},
			{"detail", act.Detail},
		} {
			if of.text != "" {
				attrs = append(attrs, slog.String(of.name, Printable(of.text)))
			}
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "tenure: audit", attrs...)
	}
}

// maxPrinted is how many bytes of a text a log line has.
const maxPrinted = 1100

// Printable returns the text with each character escaped, as Go does it, that cannot be
// seen or that steers a terminal: control characters, marks that turn the direction of
// writing, bytes that are no UTF-8. Text that is longer than any name or reason may be is
// cut.
func Printable(text string) string {
	if len(text) > maxPrinted {
		text = text[:maxPrinted] + "..."
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
