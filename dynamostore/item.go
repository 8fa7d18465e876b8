// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// The attributes of an item. The first six are those of the Amazon DynamoDB Lock
// Client; the others are Tenure's own, few and with names that other programs do
// not use.
const (
	attrOwner    = "ownerName"           // S
	attrLease    = "leaseDuration"       // S, in a dialect; leaseResting in an item that rests
	attrVersion  = "recordVersionNumber" // S
	attrReleased = "isReleased"          // S "1"; absent otherwise
	attrData     = "data"                // B
	attrToken    = "fencingToken"        // N
	attrStamp    = "stamp"               // S: the recordVersionNumber that Tenure wrote last
	attrState    = "tenureState"         // S: the state; absent in a held lock with heartbeats of its own
	attrBeat     = "tenureBeat"          // S: the beat, where it is not the recordVersionNumber
	attrTenure   = "tenure"              // S: the rest of a record, as text of package recordcodec
	attrBefore   = "tenureBefore"        // S: Record.Prev, as text of package recordcodec
	attrReason   = "tenureReason"        // S: the reason of a released item's request, if tenure has only its beginning
	attrShared   = "tenureShared"        // S "1": written with SharedTable

	attrForeign = "isNonAcquirable" // of the Rust crate dynamodb_lock
)

var ownAttributes = map[string]bool{
	attrOwner: true, attrLease: true, attrVersion: true, attrReleased: true, attrData: true,
	attrToken: true, attrStamp: true, attrState: true, attrBeat: true, attrTenure: true, attrBefore: true, attrReason: true, attrShared: true,
}

func ownNames() []string {
	var names []string
	for name := range ownAttributes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

const (
	released = "1" // the one value of isReleased on which other clients agree
	// leaseResting is the lease of an item that must not be taken although it is
	// not renewed: a lock under a session, or a session itself, for example a
	// closed one. Other clients cannot parse it, and fail; a lock whose lease
	// they can parse they would take. A reservation is different: when its time
	// is over any client may take it, and other clients by the same rule.
	leaseResting = "session"
	// stateResting is the state in the item of a lock that is held under a session:
	// a client that does not know of sessions would take a held lock, since the
	// beat of such a lock does not change.
	stateResting = "resting"
	// noBeat marks a record without a beat, if other code than Tenure's writes
	// through the store.
	noBeat = "none"
	// nobody is the owner where other clients need an owner and the lock has no holder.
	nobody = "nobody"
)

// item is a row of the table as the SDK has it.
type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}

// leaseText returns the lease duration as other clients are to read it.
func (o *Options) leaseText(rec driver.Record) string {
	switch {
	case rec.Session != "" || !dated(rec.State):
		return leaseResting
	case o.Dialect == Dynamolock:
		return rec.Lease.String()
	}
	// Rounded up: a holder may be waited for longer, never shorter.
	return strconv.FormatInt(int64((rec.Lease+time.Millisecond-1)/time.Millisecond), 10)
}

// dated reports whether other clients wait for the lease of an item in this
// state.
func dated(s driver.State) bool {
	return slices.Contains([]driver.State{driver.Held, driver.Reserved, driver.Released, driver.Past}, s)
}

// encode returns the attributes of rec, except its key and token. Empty fields
// of rec are absent.
func (o *Options) encode(rec driver.Record) item {
	lease := o.leaseText(rec)
	it := item{attrOwner: text(rec.Owner), attrLease: text(lease), attrVersion: text(rec.Version), attrStamp: text(rec.Version)}
	if len(rec.Data) > 0 {
		it[attrData] = &types.AttributeValueMemberB{Value: rec.Data}
	}
	if rec.State == driver.Released || rec.State == driver.Past {
		it[attrReleased] = text(released)
	}
	switch {
	case rec.Session != "":
		it[attrState] = text(stateResting)
	case rec.State != driver.Held:
		it[attrState] = text(string(rec.State))
	}
	if o.SharedTable && !strings.HasPrefix(rec.Key, driver.OwnPrefix) {
		it[attrShared] = text("1")
	}
	switch rec.Beat {
	case rec.Version: // as in each grant and heartbeat
	case "":
		it[attrBeat] = text(noBeat)
	default:
		it[attrBeat] = text(rec.Beat)
	}
	if rec.Prev != nil {
		it[attrBefore] = text(recordcodec.EncodeTerm(rec.Prev))
	}

	// The rest is for people, and for readers that know the state.
	more := rec
	more.Key, more.Version, more.Beat, more.Data, more.Prev = "", "", "", nil, nil
	if rec.Owner == "" {
		it[attrOwner] = text(nobody)
	}
	if read, err := parseLease(lease); err == nil && read == rec.Lease {
		more.Lease = 0
	}
	if rec.State != driver.Released {
		more.Token, more.State = 0, ""
		if rec.Owner != nobody {
			more.Owner = ""
		}
		it[attrTenure] = text(recordcodec.Encode(more))
		return it
	}
	// The text of a released record is what its successor has as tenureBefore: the
	// engine moves it there.
	if rec.End != "" {
		more.State = ""
	}
	if rec.Asked != nil && len(rec.Asked.Reason) > driver.MaxPrevReasonLen {
		it[attrReason] = text(rec.Asked.Reason)
		more.Asked = (&driver.Term{Asked: rec.Asked}).Shorten().Asked
	}
	it[attrTenure] = text(recordcodec.Encode(more))
	return it
}

// decode returns the record of an item. Its token is the token of the item
// itself; see [Store.token]. Foreign says that another client wrote it.
func (o *Options) decode(it item) (rec driver.Record, foreign bool, err error) {
	rec, foreign, err = o.understand(it)
	if err == nil {
		return rec, foreign, nil
	}
	key := ""
	if s, ok := it[o.PartitionKey].(*types.AttributeValueMemberS); ok {
		key = s.Value
	}
	return driver.Record{Key: key}, foreign, fmt.Errorf("item of %q: %w: %w", key, driver.ErrUnreadable, err)
}

func (o *Options) understand(it item) (rec driver.Record, foreign bool, err error) {
	r := reader{it: it}
	rec.Key = r.text(o.PartitionKey, true)
	rec.Version = r.text(attrVersion, true)
	stamp := r.text(attrStamp, false)
	foreign = stamp != rec.Version
	rec.Token = r.token()
	rec.Data = r.bytes(attrData)
	rec.State = driver.Held
	switch r.text(attrReleased, false) {
	case "":
	case released:
		rec.State = driver.Released
	default:
		// Other clients take its presence for released when they read, and the
		// value for the condition when they write, and so never get the lock.
		r.fail(fmt.Errorf("%s is not %q: clients disagree on what that means; remove it", attrReleased, released))
	}
	if foreign {
		// What a record may not hold would make every write of it fail.
		rec.Owner = strings.ReplaceAll(r.text(attrOwner, true), "\x00", "\ufffd")
		rec.Lease = r.foreignLease()
		return rec, true, r.err
	}
	more := r.more()
	state := r.text(attrState, false)
	if _, free := it[attrReleased]; free != (state == string(driver.Released) || state == string(driver.Past)) {
		switch {
		case !free:
			r.fail(fmt.Errorf("%s was removed by hand: set it to %q again", attrReleased, released))
		case state == "" || state == stateResting:
			// No program that knows how has released it: its holder may be alive.
			r.fail(fmt.Errorf("%s was set by hand: remove it, and free the lock with \"tenure release\"", attrReleased))
		}
	}
	switch state {
	case "":
	case stateResting:
		if rec.Session = more.Session; rec.Session == "" {
			r.fail(missing(attrTenure + ".session"))
		}
	default:
		rec.State = driver.State(state)
	}
	if rec.Owner = r.text(attrOwner, true); rec.Owner == nobody {
		rec.Owner = more.Owner
	}
	if rec.Token == 0 {
		r.fail(missing(attrToken))
	}
	if rec.Session == "" && dated(rec.State) && r.text(attrLease, true) == leaseResting {
		// A client that goes by the lease might take it from a session that lives.
		r.fail(fmt.Errorf("%s is %q, and %s is not %q", attrLease, leaseResting, attrState, stateResting))
	}
	rec.Lease = r.ownLease(more.Lease)
	switch rec.Beat = r.text(attrBeat, false); rec.Beat {
	case "":
		rec.Beat = rec.Version
	case noBeat:
		rec.Beat = ""
	}
	rec.Heartbeat, rec.Drift, rec.Notify, rec.Priority = more.Heartbeat, more.Drift, more.Notify, more.Priority
	rec.Host, rec.Label, rec.Since, rec.Until, rec.End = more.Host, more.Label, more.Since, more.Until, more.End
	rec.Asked, rec.Requests, rec.Unknown = more.Asked, more.Requests, more.Unknown
	if whole := r.text(attrReason, false); whole != "" && rec.Asked != nil && rec.State == driver.Released {
		rec.Asked.Reason = whole
	}
	rec.Prev = r.term()
	return rec, false, r.err
}

// A lease duration that no lock client writes.
const (
	maxLease = 100 * 365 * 24 * time.Hour
	// leastPlainLease is the shortest lease of another client that is accepted
	// without a unit. The Rust crate dynamodb_lock, up to 0.4, wrote seconds:
	// its 20 would be read as 20 ms, and the lock be taken from a living
	// holder.
	leastPlainLease = time.Second
)

// parseLease reads a lease duration of either dialect.
func parseLease(s string) (time.Duration, error) {
	if plain(s) {
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ms > int64(maxLease/time.Millisecond) {
			return 0, fmt.Errorf("lease of %s ms is too long", s)
		}
		return time.Duration(ms) * time.Millisecond, nil
	}
	if s == leaseResting {
		return 0, errors.New("it stands for a lease in another attribute, which is missing")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("neither milliseconds, as the Java client writes it, nor a Go duration, as dynamolock writes it")
	}
	if d > maxLease {
		return 0, fmt.Errorf("lease of %v is too long", d)
	}
	return d, nil
}

// plain reports whether s is a number without a unit.
func plain(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
