// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// names are the placeholders of all expressions.
var names = map[string]string{
	"#on": attrOwner, "#ld": attrLease, "#rv": attrVersion, "#ir": attrReleased, "#da": attrData,
	"#tk": attrToken, "#st": attrStamp, "#sa": attrState, "#bt": attrBeat, "#te": attrTenure, "#be": attrBefore, "#re": attrReason,
	"#sh": attrShared,
}

// written are the placeholders of what encode returns. tenureBefore, which a claim
// fills in another way, is the last.
var written = [...]string{"#on", "#ld", "#rv", "#ir", "#da", "#st", "#sa", "#bt", "#sh", "#te", "#re", "#be"}

// Conditions, each decided by the engine together with the write.
const (
	isAbsent = "attribute_not_exists(#k)"
	// isFree is true for a lock that Tenure released, if every attribute that
	// decides this is understood. An item that another client released has an
	// old stamp, history and states of a later version have another state, and
	// an item that was released by hand has none.
	isFree = "#ir = :one AND #st = #rv AND #sa = :rel AND #tk < :max" +
		" AND attribute_type(#te, :str) AND attribute_type(#ld, :str) AND attribute_type(#on, :str)" +
		" AND (attribute_not_exists(#da) OR attribute_type(#da, :bin))"
	// isOwn is true of what Tenure wrote under this version and token.
	isOwn = "(#rv = :pv AND #st = :pv AND #tk = :pt)"
	// isForeign is true of what another client wrote under this version. The
	// token that may be there is of an earlier time. Such a client releases, and
	// changes the data with that, under the version that it held under: so those
	// are compared as well.
	isForeign = "#rv = :pv AND (attribute_not_exists(#st) OR #st <> :pv) AND (attribute_not_exists(#tk) OR #tk <= :pt)"
	// notShared is true for an item that was written without SharedTable.
	notShared = " AND attribute_not_exists(#sh)"
	wasHeld   = " AND attribute_not_exists(#ir)"
	wasFree   = " AND #ir = :one"
	hadData   = " AND #da = :pd"
	hadNone   = " AND attribute_not_exists(#da)"
)

// expression is an update, a condition, or an update with its condition.
type expression struct {
	set, remove []string
	condition   string
	values      item
	user        []string // names of attributes of the user's own, #u0 and on
}

// update returns the update expression.
func (e *expression) update() *string {
	all := "SET " + strings.Join(e.set, ", ")
	if len(e.remove) > 0 {
		all += " REMOVE " + strings.Join(e.remove, ", ")
	}
	return &all
}

// names returns the names that the expression uses: DynamoDB refuses any that
// it does not.
func (e *expression) names(partitionKey string) map[string]string {
	used := map[string]string{}
	for placeholder, name := range names {
		if e.uses(placeholder) {
			used[placeholder] = name
		}
	}
	if e.uses("#k") {
		used["#k"] = partitionKey
	}
	for i, name := range e.user {
		used["#u"+strconv.Itoa(i)] = name
	}
	if len(used) == 0 {
		return nil // an empty map is refused
	}
	return used
}

func (e *expression) uses(placeholder string) bool {
	has := func(part string) bool { return strings.Contains(part, placeholder) }
	return has(e.condition) || slices.ContainsFunc(e.set, has) || slices.ContainsFunc(e.remove, has)
}

// write begins an update that stores all of rec except its token. Other
// attributes of the item stay: they may belong to other programs.
func (o *Options) write(rec driver.Record, placeholders []string) *expression {
	e := &expression{values: item{}}
	it := o.encode(rec)
	for _, placeholder := range placeholders {
		value, found := it[names[placeholder]]
		if !found {
			e.remove = append(e.remove, placeholder)
			continue
		}
		e.set = append(e.set, placeholder+" = :"+placeholder[1:])
		e.values[":"+placeholder[1:]] = value
	}
	return e
}

// placeholders returns the placeholders of the written attributes, without some.
func placeholders(without ...string) []string {
	all := make([]string, 0, len(written))
	for _, placeholder := range written {
		if !slices.Contains(without, placeholder) {
			all = append(all, placeholder)
		}
	}
	return all
}

// claim writes next over nothing, or over what Tenure released. The engine
// counts the token and carries over the term that ended.
func (o *Options) claim(next driver.Record) *expression {
	without := []string{"#be"}
	if next.Data == nil {
		without = append(without, "#da")
	}
	e := o.write(next, placeholders(without...))
	e.set = append(e.set, "#tk = if_not_exists(#tk, :zero) + :inc", "#be = if_not_exists(#te, :none)")
	e.values[":zero"], e.values[":inc"], e.values[":none"] = number(0), number(1), text(recordcodec.EncodeTerm(nil))
	e.values[":one"], e.values[":max"], e.values[":rel"] = text(released), number(driver.MaxToken), text(string(driver.Released))
	e.values[":str"], e.values[":bin"] = text("S"), text("B")
	e.condition = isAbsent + " OR (" + isFree + o.guard() + ")"
	return e
}

// replace writes all of next, unconditionally.
func (o *Options) replace(next driver.Record, keepData bool) *expression {
	var without []string
	if keepData {
		without = append(without, "#da")
	}
	e := o.write(next, placeholders(without...))
	e.set = append(e.set, "#tk = :tk")
	e.values[":tk"] = number(next.Token)
	return e
}

// guard is added to the condition of a write that begins a term, so that a
// process without SharedTable does not count tokens where others use it.
func (o *Options) guard() string {
	if o.SharedTable || o.Unshare {
		return ""
	}
	return notShared
}

// swap writes next over prev. Under its version the record has the data that prev has:
// without this a heartbeat would send them each time.
func (o *Options) swap(prev, next driver.Record) *expression {
	e := o.replace(next, len(next.Data) > 0 && bytes.Equal(prev.Data, next.Data))
	e.only(o, prev)
	if next.Token != prev.Token {
		e.condition += o.guard()
	}
	return e
}

// only makes the expression conditional on the version and token of prev.
func (e *expression) only(o *Options, prev driver.Record) {
	e.condition = isOwn
	e.values[":pv"], e.values[":pt"] = text(prev.Version), number(prev.Token)
	if !o.SharedTable || prev.Beat != "" {
		return // Tenure wrote it
	}
	foreign := isForeign
	if prev.State == driver.Released {
		foreign += wasFree
		e.values[":one"] = text(released)
	} else {
		foreign += wasHeld
	}
	if len(prev.Data) > 0 {
		foreign += hadData
		e.values[":pd"] = &types.AttributeValueMemberB{Value: prev.Data}
	} else {
		foreign += hadNone
	}
	e.condition = "(" + isOwn + " OR (" + foreign + "))"
}
