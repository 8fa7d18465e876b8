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
)

// The attributes of an item. The first six are those of the Amazon DynamoDB Lock
// Client; the others are Tenure's own, few and with names that nobody else's
// additional attributes have.
const (
	attrOwner    = "ownerName"           // S
	attrLease    = "leaseDuration"       // S, in a dialect; leaseResting in an item that rests
	attrVersion  = "recordVersionNumber" // S
	attrReleased = "isReleased"          // S "1"; absent otherwise
	attrData     = "data"                // B
	attrToken    = "fencingToken"        // N
	attrStamp    = "stamp"               // S: the recordVersionNumber that Tenure wrote last
	attrTenure   = "tenure"              // M: what else a record has
	attrBefore   = "tenureBefore"        // M: Record.Prev
	attrEnded    = "tenureEnded"         // M, in a released item: what the next holder's tenureBefore will be
)

var ownAttributes = map[string]bool{
	attrOwner: true, attrLease: true, attrVersion: true, attrReleased: true, attrData: true,
	attrToken: true, attrStamp: true, attrTenure: true, attrBefore: true, attrEnded: true,
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
	keyState   = "state"   // in attrTenure: the state, where isReleased does not tell it
	keySession = "session" // in attrTenure: Record.Session
	released   = "1"       // the one value of isReleased on which other clients agree
	// leaseResting is the lease of an item that must not be taken although nobody
	// renews it: a lock under a session, or a session itself, closed for example.
	// Other clients cannot parse it, and fail; one that they could parse, they
	// would take. A reservation is not of that kind: when its time is over anybody
	// may take it, and they by the same rule.
	leaseResting = "session"
	// stateResting is the state in the item of a lock that is held under a session.
	// A Tenure that knows no sessions finds it unreadable. If it read that the lock
	// is held, it would take it: the beat of such a lock stands still.
	stateResting = "resting"
	// nobody stands where other clients need an owner and there is none.
	nobody = "nobody"
)

// item is a row of the table as the SDK has it.
type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}

// null stands for "no tenure" where an expression needs a value.
var null types.AttributeValue = &types.AttributeValueMemberNULL{Value: true}

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

// dated reports whether the lease of an item in this state tells other clients
// how long to wait.
func dated(s driver.State) bool {
	return slices.Contains([]driver.State{driver.Held, driver.Reserved, driver.Released, driver.Past}, s)
}

// encode returns the attributes of rec that one write sets, all but its key,
// token and Prev. What is empty in rec is absent.
func (o *Options) encode(rec driver.Record) item {
	lease := o.leaseText(rec)
	it := item{attrOwner: text(rec.Owner), attrLease: text(lease), attrVersion: text(rec.Version), attrStamp: text(rec.Version)}
	if len(rec.Data) > 0 {
		it[attrData] = &types.AttributeValueMemberB{Value: rec.Data}
	}
	if rec.State == driver.Released || rec.State == driver.Past {
		it[attrReleased] = text(released)
	}
	if rec.State == driver.Released {
		it[attrEnded] = encodeTenure(rec.Tenure(driver.EndReleased))
	}
	more := item{}
	if rec.Owner == "" {
		it[attrOwner], more[nobody] = text(nobody), &types.AttributeValueMemberBOOL{Value: true}
	}
	put(more, "beat", rec.Beat)
	put(more, "host", rec.Host)
	put(more, "label", rec.Label)
	put(more, "end", string(rec.End))
	putTime(more, "since", rec.Since)
	putTime(more, "until", rec.Until)
	if rec.Heartbeat != 0 {
		put(more, "heartbeat", rec.Heartbeat.String())
	}
	if read, err := parseLease(lease); err != nil || read != rec.Lease {
		put(more, "lease", rec.Lease.String())
	}
	switch {
	case rec.Session != "":
		put(more, keyState, stateResting)
		put(more, keySession, rec.Session)
	case rec.State != driver.Held && rec.State != driver.Released:
		put(more, keyState, string(rec.State))
	}
	if rec.Priority != 0 {
		more["priority"] = &types.AttributeValueMemberN{Value: strconv.Itoa(rec.Priority)}
	}
	if rec.Asked != nil {
		more["asked"] = encodeRequest(*rec.Asked)
	}
	if len(rec.Requests) > 0 {
		list := make([]types.AttributeValue, len(rec.Requests))
		for i, request := range rec.Requests {
			list[i] = encodeRequest(request)
		}
		more["requests"] = &types.AttributeValueMemberL{Value: list}
	}
	it[attrTenure] = &types.AttributeValueMemberM{Value: more}
	return it
}

func put(it item, name, value string) {
	if value != "" {
		it[name] = text(value)
	}
}

func putTime(it item, name string, t time.Time) {
	if !t.IsZero() {
		put(it, name, t.UTC().Format(time.RFC3339Nano))
	}
}

func encodeRequest(q driver.Request) types.AttributeValue {
	it := item{}
	put(it, "id", q.ID)
	put(it, "kind", string(q.Kind))
	put(it, "lock", q.Lock)
	if q.Token != 0 {
		it["token"] = number(q.Token)
	}
	put(it, "by", q.By)
	put(it, "reason", q.Reason)
	put(it, "to", q.To)
	putTime(it, "at", q.At)
	return &types.AttributeValueMemberM{Value: it}
}

// encodeTenure returns null for no tenure: an empty one is something else.
func encodeTenure(t *driver.Tenure) types.AttributeValue {
	if t == nil {
		return null
	}
	it := item{}
	put(it, "owner", t.Owner)
	put(it, "host", t.Host)
	put(it, "label", t.Label)
	put(it, "end", string(t.End))
	putTime(it, "since", t.Since)
	putTime(it, "until", t.Until)
	if t.Token != 0 {
		it["token"] = number(t.Token)
	}
	if t.Asked != nil {
		it["asked"] = encodeRequest(*t.Asked)
	}
	return &types.AttributeValueMemberM{Value: it}
}

// decode returns the record of an item. Token is that of the item itself; see
// [Store.token]. Foreign says that another client wrote it.
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
		r.fail(fmt.Errorf("%s is not %q: no client agrees on what that means; remove it", attrReleased, released))
	}
	if foreign {
		rec.Owner = r.text(attrOwner, true)
		rec.Lease = r.foreignLease()
		return rec, true, r.err
	}
	m := reader{it: r.object(attrTenure), in: attrTenure}
	if rec.Owner = r.text(attrOwner, true); m.it[nobody] != nil {
		rec.Owner = ""
	}
	switch state := m.text(keyState, false); state {
	case "":
	case stateResting:
		rec.Session = m.text(keySession, true)
	default:
		rec.State = driver.State(state)
	}
	if _, ended := it[attrEnded]; rec.State == driver.Released && !ended {
		// Nobody released it who knows how: its holder may be alive.
		r.fail(fmt.Errorf("%s was set by hand: remove it, and free the lock with \"tenure release\"", attrReleased))
	}
	if rec.Token == 0 {
		r.fail(missing(attrToken))
	}
	if rec.Session == "" && dated(rec.State) && r.text(attrLease, true) == leaseResting {
		// Whoever took it by its lease might take it from a session that lives.
		r.fail(fmt.Errorf("%s is %q, and %s.%s names no session", attrLease, leaseResting, attrTenure, keySession))
	}
	rec.Lease = r.ownLease(&m)
	rec.Beat = m.text("beat", false)
	rec.Heartbeat = m.duration("heartbeat")
	rec.Priority = m.integer("priority")
	rec.Host, rec.Label = m.text("host", false), m.text("label", false)
	rec.End = driver.EndReason(m.text("end", false))
	rec.Since, rec.Until = m.time("since"), m.time("until")
	rec.Asked = m.request("asked")
	rec.Requests = m.requests("requests")
	rec.Prev = r.tenure(attrBefore)
	return rec, false, errors.Join(r.err, m.err)
}

// A lease duration that no lock client writes.
const (
	maxLease = 100 * 365 * 24 * time.Hour
	// leastPlainLease is the shortest lease of another client that is believed
	// when it stands there without a unit. The Rust crate dynamodb_lock, up to
	// 0.4, wrote seconds: its 20 would be read as 20 ms, and the lock be taken
	// from a living holder.
	leastPlainLease = time.Second
)

// parseLease reads a lease duration of either dialect.
func parseLease(s string) (time.Duration, error) {
	if plain(s) {
		ms, err := strconv.ParseInt(s, 10, 64)
		if err != nil || ms > int64(maxLease/time.Millisecond) {
			return 0, fmt.Errorf("lease of %s ms is longer than any", s)
		}
		return time.Duration(ms) * time.Millisecond, nil
	}
	if s == leaseResting {
		return 0, errors.New("the item rests, and does not say for how long")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("neither milliseconds, as the Java client writes it, nor a duration of Go, as dynamolock does")
	}
	if d > maxLease {
		return 0, fmt.Errorf("lease of %v is longer than any", d)
	}
	return d, nil
}

// plain reports whether s is a number without a unit.
func plain(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
