// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// reader takes values out of an item or of a map in one, and keeps the first
// error.
type reader struct {
	it  item
	in  string // the attribute that holds the map, "" for the item itself
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) name(attr string) string {
	if r.in != "" {
		return r.in + "." + attr
	}
	return attr
}

func missing(attr string) error { return fmt.Errorf("it has no %s", attr) }

// mistyped says what stands where something else belongs.
func (r *reader) mistyped(attr, want string) {
	r.fail(fmt.Errorf("%s is %s, not %s", r.name(attr), typeOf(r.it[attr]), want))
}

func typeOf(v types.AttributeValue) string {
	switch v.(type) {
	case *types.AttributeValueMemberS:
		return "a string (S)"
	case *types.AttributeValueMemberN:
		return "a number (N)"
	case *types.AttributeValueMemberB:
		return "binary (B)"
	case *types.AttributeValueMemberBOOL:
		return "a boolean (BOOL)"
	case *types.AttributeValueMemberNULL:
		return "null (NULL)"
	case *types.AttributeValueMemberM:
		return "a map (M)"
	case *types.AttributeValueMemberL:
		return "a list (L)"
	}
	return "a set"
}

func (r *reader) text(attr string, required bool) string {
	v, found := r.it[attr]
	s, ok := v.(*types.AttributeValueMemberS)
	switch {
	case !found && required:
		r.fail(missing(r.name(attr)))
	case found && !ok:
		r.mistyped(attr, "a string (S)")
	case ok && required && s.Value == "":
		r.fail(fmt.Errorf("%s is empty", r.name(attr)))
	case ok:
		return s.Value
	}
	return ""
}

func (r *reader) bytes(attr string) []byte {
	v, found := r.it[attr]
	b, ok := v.(*types.AttributeValueMemberB)
	if found && !ok {
		r.mistyped(attr, "binary (B); the Rust crate dynamodb_lock writes strings, and its locks are not understood here")
	}
	if !ok || len(b.Value) == 0 {
		return nil
	}
	return b.Value
}

// object returns the map in an attribute, which must be there.
func (r *reader) object(attr string) item {
	m, ok := r.it[attr].(*types.AttributeValueMemberM)
	if !ok {
		if _, found := r.it[attr]; !found {
			r.fail(missing(r.name(attr)))
		} else {
			r.mistyped(attr, "a map (M)")
		}
		return nil
	}
	return m.Value
}

func (r *reader) token() uint64 { return r.number(attrToken) }

// number returns a token, 0 if it is absent.
func (r *reader) number(attr string) uint64 {
	v, found := r.it[attr]
	if !found {
		return 0
	}
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		r.mistyped(attr, "a number (N)")
		return 0
	}
	return r.whole(attr, n.Value)
}

func (r *reader) whole(attr, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > driver.MaxToken {
		r.fail(fmt.Errorf("%s is %s, not a whole number from 0 to %d", r.name(attr), s, uint64(driver.MaxToken)))
		return 0
	}
	return n
}

func (r *reader) integer(attr string) int {
	v, found := r.it[attr]
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		if found {
			r.mistyped(attr, "a number (N)")
		}
		return 0
	}
	i, err := strconv.Atoi(n.Value)
	if err != nil {
		r.fail(fmt.Errorf("%s is %s, not a whole number", r.name(attr), n.Value))
	}
	return i
}

// lease returns the lease duration of an item of Tenure's own.
func (r *reader) lease() time.Duration {
	s := r.text(attrLease, true)
	if s == "" {
		return 0
	}
	d, err := parseLease(s)
	switch {
	case err != nil:
		r.fail(fmt.Errorf("%s is %q: %w", attrLease, s, err))
	case d <= 0:
		r.fail(fmt.Errorf("%s is %q: a lease is longer than nothing", attrLease, s))
	}
	return d
}

// ownLease returns the lease of an item of Tenure's own, of which m is the map. It
// stands there exactly if leaseDuration cannot hold it; if somebody has raised
// that by hand, the longer one counts.
func (r *reader) ownLease(m *reader) time.Duration {
	exact := m.duration("lease")
	if exact == 0 {
		return r.lease()
	}
	const rounding = time.Millisecond
	if s := r.text(attrLease, true); s != leaseResting {
		if d := r.lease(); d >= exact+rounding {
			return d
		}
	}
	return exact
}

// foreignLease returns that of an item of another client. Which one wrote it
// is not said in the item; what might be meant in another way is refused.
func (r *reader) foreignLease() time.Duration {
	if n, ok := r.it[attrLease].(*types.AttributeValueMemberN); ok {
		r.fail(fmt.Errorf("%s is the number %s, as the Rust crate dynamodb_lock writes it: an instant of the holder's clock, which is not compared with any other; "+
			"stop the users of that crate, then delete the item", attrLease, n.Value))
		return 0
	}
	if _, ok := r.it["isNonAcquirable"]; ok {
		r.fail(fmt.Errorf("it has the attribute isNonAcquirable, of the Rust crate dynamodb_lock: stop the users of that crate, then delete the item"))
		return 0
	}
	d := r.lease()
	if s, ok := r.it[attrLease].(*types.AttributeValueMemberS); ok && r.err == nil && d < leastPlainLease && plain(s.Value) {
		r.fail(fmt.Errorf("%s is %q: that is %[2]s ms if the Java client wrote it, and %[2]s s if the Rust crate dynamodb_lock did; "+
			"stop the users of that crate, then delete the item", attrLease, s.Value))
		return 0
	}
	return d
}

// duration returns one of Tenure's own, 0 if it is absent.
func (r *reader) duration(attr string) time.Duration {
	s := r.text(attr, false)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		r.fail(fmt.Errorf("%s is %q, not a duration longer than nothing", r.name(attr), s))
	}
	return d
}

// time returns an instant that is for people. What cannot be read is unknown:
// no lock is kept from anybody for it.
func (r *reader) time(attr string) time.Time {
	s, ok := r.it[attr].(*types.AttributeValueMemberS)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s.Value)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

func (r *reader) request(attr string) *driver.Request {
	if _, found := r.it[attr]; !found {
		return nil
	}
	q := r.decodeRequest(r.it[attr], attr)
	return &q
}

func (r *reader) requests(attr string) []driver.Request {
	v, found := r.it[attr]
	if !found {
		return nil
	}
	list, ok := v.(*types.AttributeValueMemberL)
	if !ok {
		r.mistyped(attr, "a list (L)")
		return nil
	}
	var all []driver.Request
	for _, v := range list.Value {
		all = append(all, r.decodeRequest(v, attr))
	}
	return all
}

func (r *reader) decodeRequest(v types.AttributeValue, attr string) driver.Request {
	m, ok := v.(*types.AttributeValueMemberM)
	if !ok {
		r.fail(fmt.Errorf("%s is %s, not a map (M)", r.name(attr), typeOf(v)))
		return driver.Request{}
	}
	q := reader{it: m.Value, in: r.name(attr)}
	request := driver.Request{
		ID: q.text("id", false), Kind: driver.RequestKind(q.text("kind", false)),
		Lock: q.text("lock", false), Token: q.number("token"),
		By: q.text("by", false), Reason: q.text("reason", false), To: q.text("to", false), At: q.time("at"),
	}
	if q.err != nil {
		r.fail(q.err)
	}
	return request
}

func (r *reader) tenure(attr string) *driver.Tenure {
	switch r.it[attr].(type) {
	case nil, *types.AttributeValueMemberNULL:
		return nil
	}
	m := reader{it: r.object(attr), in: attr}
	t := &driver.Tenure{
		Owner: m.text("owner", false), Host: m.text("host", false), Label: m.text("label", false),
		Since: m.time("since"), Until: m.time("until"),
		End: driver.EndReason(m.text("end", false)), Asked: m.request("asked"),
	}
	if n, ok := m.it["token"].(*types.AttributeValueMemberN); ok {
		t.Token = m.whole("token", n.Value)
	}
	if m.err != nil {
		r.fail(m.err)
	}
	return t
}
