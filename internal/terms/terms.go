// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package terms puts together what a reader sees of a lock's history: the terms that
// the lock's record shows, and the entries that a protocol.HistoryWriter has written.
package terms

import (
	"slices"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// Entry is one term as a history shows it.
type Entry struct {
	driver.Term
	// Unknown says that there was a term with this token, and that nothing else is known
	// about it.
	Unknown bool
}

// Of returns the terms that the record of a lock itself shows, newest first.
func Of(rec driver.Record) []Entry {
	var list []Entry
	if rec.State != driver.Reserved {
		t := *rec.Term(rec.End)
		if rec.State == driver.Held && len(rec.Requests) == 0 {
			t.Asked = nil
		}
		list = append(list, Entry{Term: t})
	}
	switch {
	case rec.Prev != nil:
		list = append(list, Entry{Term: *rec.Prev})
	case rec.State == driver.Reserved:
		list = append(list, unknown(rec.Token))
	}
	return list
}

func unknown(token uint64) Entry {
	return Entry{Term: driver.Term{Token: token}, Unknown: true}
}

// Shortened says that a record keeps less of the previous term than the history does:
// only the beginning of a long reason.
func Shortened(prev *driver.Term) bool {
	return prev != nil && prev.Token != 0 && prev.Asked != nil &&
		len(prev.Asked.Reason) >= driver.MaxPrevReasonLen-utf8.UTFMax
}

// Lengthen replaces the last entry of the list, as shortened by its successor's record,
// with the whole one.
func Lengthen(list []Entry, whole Entry) {
	last := &list[len(list)-1]
	if !whole.Unknown && whole.Owner == last.Owner && whole.Since.Equal(last.Since) {
		*last = whole
	}
}

// Older returns the range (to, from] of the tokens of a history to read after the known
// list, so that there are limit terms in all.
func Older(list []Entry, limit uint64) (from, to uint64) {
	from = list[len(list)-1].PrevToken()
	return from, from - min(from, limit-min(limit, uint64(len(list))))
}

// UpToGap returns the entries of past up to the first raised token, and whether it cut
// any off. No term had the tokens that raising skipped, so the caller must read the next
// entries from below that gap.
func UpToGap(past []Entry) (dense []Entry, cut bool) {
	for i, e := range past {
		if e.PrevToken()+1 < e.Token {
			return past[:i+1], true
		}
	}
	return past, false
}

// EntryOf returns the entry for a token from its history record. Without such a record
// the term is returned as unknown, never left out.
func EntryOf(token uint64, rec driver.Record, found bool) Entry {
	if !found || rec.State != driver.Past {
		return unknown(token)
	}
	t := *rec.Term(rec.End)
	t.Token = token // the token in the record does not count
	return Entry{Term: t}
}

// Whole returns a history: the terms that the lock's record shows, and the earlier ones
// that were read. A lock without a history has none of the latter.
func Whole(list, past []Entry) []Entry {
	if slices.ContainsFunc(past, func(e Entry) bool { return !e.Unknown }) {
		list = append(list, past...)
	}
	return list
}
