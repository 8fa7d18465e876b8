// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// reader takes values out of an item, and keeps the first error.
type reader struct {
	it  item
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func missing(attr string) error { return fmt.Errorf("it has no %s", attr) }

// mistyped returns the error of a value of the wrong type.
func (r *reader) mistyped(attr, want string) {
	r.fail(fmt.Errorf("%s is %s, not %s", attr, typeOf(r.it[attr]), want))
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
		r.fail(missing(attr))
	case found && !ok:
		r.mistyped(attr, "a string (S)")
	case ok && required && s.Value == "":
		r.fail(fmt.Errorf("%s is empty", attr))
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
		r.fail(fmt.Errorf("%s is %s, not a whole number from 0 to %d", attr, s, uint64(driver.MaxToken)))
		return 0
	}
	return n
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
		r.fail(fmt.Errorf("%s is %q: a lease must be longer than 0", attrLease, s))
	}
	return d
}

// ownLease returns the lease of an item of Tenure's own. Its text has the exact
// lease only if leaseDuration cannot hold it; if that was raised by hand, the
// longer one counts.
func (r *reader) ownLease(exact time.Duration) time.Duration {
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

// foreignLease returns the lease of an item of another client. The item does
// not say which client wrote it; an ambiguous lease is refused.
func (r *reader) foreignLease() time.Duration {
	if n, ok := r.it[attrLease].(*types.AttributeValueMemberN); ok {
		r.fail(fmt.Errorf("%s is the number %s, as the Rust crate dynamodb_lock writes it: a time of the holder's clock, which Tenure compares with no other clock; "+
			"stop the users of that crate, then delete the item", attrLease, n.Value))
		return 0
	}
	if _, ok := r.it[attrForeign]; ok {
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

// more returns what the text of an item of Tenure's own says.
func (r *reader) more() driver.Record {
	s := r.text(attrTenure, true)
	if r.err != nil {
		return driver.Record{}
	}
	rec, err := recordcodec.DecodePart(s)
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", attrTenure, err))
	}
	return rec
}

// term returns the term before the item's term.
func (r *reader) term() *driver.Term {
	s := r.text(attrBefore, false)
	if s == "" {
		return nil
	}
	t, err := recordcodec.DecodeTerm(s)
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", attrBefore, err))
	}
	return t
}
