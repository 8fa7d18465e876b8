// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// Entry is one tenure as a history shows it.
type Entry struct {
	driver.Tenure
	// Unknown says that there was a tenure under this token, of which nothing else
	// is known.
	Unknown bool
}

// Present returns what the record of a lock itself tells of its tenures, the newest
// first.
func Present(rec driver.Record) []Entry {
	var list []Entry
	if rec.State != driver.Reserved {
		t := *rec.Tenure(rec.End)
		if rec.State == driver.Held && len(rec.Requests) == 0 {
			t.Asked = nil
		}
		list = append(list, Entry{Tenure: t})
	}
	switch {
	case rec.Prev != nil:
		list = append(list, Entry{Tenure: *rec.Prev})
	case rec.State == driver.Reserved:
		list = append(list, unknown(rec.Token))
	}
	return list
}

func unknown(token uint64) Entry {
	return Entry{Tenure: driver.Tenure{Token: token}, Unknown: true}
}

// Shortened says that a record keeps less of the tenure before its own than the
// history does: the beginning of a long reason.
func Shortened(prev *driver.Tenure) bool {
	return prev != nil && prev.Token != 0 && prev.Asked != nil &&
		len(prev.Asked.Reason) >= driver.MaxPrevReasonLen-utf8.UTFMax
}

// Lengthen puts the whole of a tenure in the place of what the record of its
// successor kept of it, the last of the list.
func Lengthen(list []Entry, whole Entry) {
	last := &list[len(list)-1]
	if !whole.Unknown && whole.Owner == last.Owner && whole.Since.Equal(last.Since) {
		*last = whole
	}
}

// Older returns which tokens of a history to read after the list that is known: from,
// from-1, ... down to to+1, so that there are limit tenures in all.
func Older(list []Entry, limit uint64) (from, to uint64) {
	from = list[len(list)-1].Below()
	return from, from - min(from, limit-min(limit, uint64(len(list))))
}

// Dense returns the entries of past that stand for tokens which were given, and
// whether that is not all of them: what follows upon a token that was raised is read
// from the token below it, and nothing was ever held under those between the two.
func Dense(past []Entry) (dense []Entry, cut bool) {
	for i, e := range past {
		if e.Below()+1 < e.Token {
			return past[:i+1], true
		}
	}
	return past, false
}

// EntryOf returns what the history's record says of a token. A tenure without such a
// record is returned as unknown, never left out.
func EntryOf(token uint64, rec driver.Record, found bool) Entry {
	if !found || rec.State != driver.Past {
		return unknown(token)
	}
	t := *rec.Tenure(rec.End)
	t.Token = token // the record's own token does not count
	return Entry{Tenure: t}
}

// Whole returns a history: what the record of a lock tells, and what was read of
// those before. A lock that keeps no history has none of these.
func Whole(list, past []Entry) []Entry {
	if slices.ContainsFunc(past, func(e Entry) bool { return !e.Unknown }) {
		list = append(list, past...)
	}
	return list
}
