// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"bytes"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure/driver"
)

// names are the placeholders of all expressions. The name of an attribute never
// stands in an expression itself: data is a reserved word, and a key may be one.
var names = map[string]string{
	"#on": attrOwner, "#ld": attrLease, "#rv": attrVersion, "#ir": attrReleased, "#da": attrData,
	"#tk": attrToken, "#st": attrStamp, "#te": attrTenure, "#be": attrBefore, "#en": attrEnded,
	"#sa": keyState,
}

// written are the placeholders of what encode returns.
var written = [...]string{"#on", "#ld", "#rv", "#ir", "#da", "#st", "#te", "#en"}

// Conditions, each decided by the engine together with the write.
const (
	isAbsent = "attribute_not_exists(#k)"
	// isFree is true of a lock that Tenure released, and of which all is
	// understood that decides. What another client released bears an old stamp,
	// history and states of a later version have no tenureEnded or a state.
	isFree = "(#ir = :one AND #st = #rv AND attribute_exists(#en) AND #tk < :max AND attribute_not_exists(#te.#sa)" +
		" AND attribute_type(#te, :map) AND attribute_type(#ld, :str) AND attribute_type(#on, :str)" +
		" AND (attribute_not_exists(#da) OR attribute_type(#da, :bin)))"
	// isOwn is true of what Tenure wrote under this version and token.
	isOwn = "(#rv = :pv AND #st = :pv AND #tk = :pt)"
	// isForeign is true of what another client wrote under this version. The
	// token that may be there is of an earlier time. Such a client releases, and
	// changes the data with that, under the version that it held under: so those
	// are compared as well.
	isForeign = "#rv = :pv AND (attribute_not_exists(#st) OR #st <> :pv) AND (attribute_not_exists(#tk) OR #tk <= :pt)"
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
}

// update returns the update expression.
func (e *expression) update() string {
	all := "SET " + strings.Join(e.set, ", ")
	if len(e.remove) > 0 {
		all += " REMOVE " + strings.Join(e.remove, ", ")
	}
	return all
}

// names returns the names that the expression uses: DynamoDB refuses any that
// it does not.
func (e *expression) names(partitionKey string) map[string]string {
	used := map[string]string{}
	all := strings.Join(e.set, " ") + strings.Join(e.remove, " ") + e.condition
	for placeholder, name := range names {
		if strings.Contains(all, placeholder) {
			used[placeholder] = name
		}
	}
	if strings.Contains(all, "#k") {
		used["#k"] = partitionKey
	}
	return used
}

// write begins an update that stores all of rec but token and Prev. Everything
// else that is in the item stays: others keep attributes of their own there.
func (o *Options) write(rec driver.Record, keepData bool) *expression {
	e := &expression{values: item{}}
	it := o.encode(rec)
	for _, placeholder := range written {
		value, found := it[names[placeholder]]
		switch {
		case placeholder == "#da" && keepData:
		case found:
			e.set = append(e.set, placeholder+" = :"+placeholder[1:])
			e.values[":"+placeholder[1:]] = value
		default:
			e.remove = append(e.remove, placeholder)
		}
	}
	return e
}

// claim writes next over nothing, or over what Tenure released. The engine
// counts the token and carries over the tenure that ended.
func (o *Options) claim(next driver.Record) *expression {
	e := o.write(next, next.Data == nil)
	e.set = append(e.set, "#tk = if_not_exists(#tk, :zero) + :inc", "#be = if_not_exists(#en, :null)")
	e.values[":zero"], e.values[":inc"], e.values[":null"] = number(0), number(1), null
	e.values[":one"], e.values[":max"] = text(released), number(driver.MaxToken)
	e.values[":map"], e.values[":str"], e.values[":bin"] = text("M"), text("S"), text("B")
	e.condition = isAbsent + " OR " + isFree
	return e
}

// replace writes all of next, whatever is there.
func (o *Options) replace(next driver.Record, keepData bool) *expression {
	e := o.write(next, keepData)
	e.set = append(e.set, "#tk = :tk")
	e.values[":tk"] = number(next.Token)
	if next.Prev == nil {
		e.remove = append(e.remove, "#be")
		return e
	}
	e.set = append(e.set, "#be = :be")
	e.values[":be"] = encodeTenure(next.Prev)
	return e
}

// swap writes next over prev.
func (o *Options) swap(prev, next driver.Record) *expression {
	// Under its version the record has the data that prev has. Without this a
	// heartbeat would send them each time.
	keepData := len(next.Data) > 0 && bytes.Equal(prev.Data, next.Data)
	e := o.replace(next, keepData)
	e.only(o, prev)
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
