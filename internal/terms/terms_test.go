// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package terms

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// shown returns entries in short form.
func shown(list []Entry) string {
	var words []string
	for _, e := range list {
		word := e.Owner
		if e.Unknown {
			word = "?"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestOf: which terms the record of a lock shows by itself.
func TestOf(t *testing.T) {
	held := driver.Record{State: driver.Held, Owner: "b", Token: 4}
	after := held
	after.Prev = &driver.Term{Owner: "a", Token: 3}
	kept := driver.Record{State: driver.Reserved, Owner: "c", Token: 4}
	keptAfter := kept
	keptAfter.Prev = &driver.Term{Owner: "b", Token: 4}
	for _, tt := range []struct {
		rec  driver.Record
		want string
	}{{held, "b"}, {after, "b a"}, {kept, "?"}, {keptAfter, "b"}} {
		if list := Of(tt.rec); shown(list) != tt.want || list[0].Token != 4 {
			t.Errorf("%+v: shows %q, want %q", tt.rec, shown(list), tt.want)
		}
	}
}

// TestOlder: which tokens are read, so that there are as many terms as are kept.
func TestOlder(t *testing.T) {
	list := func(tokens ...uint64) (list []Entry) {
		for _, token := range tokens {
			list = append(list, unknown(token))
		}
		return list
	}
	for _, tt := range []struct {
		list            []Entry
		limit, from, to uint64
	}{
		{list(9, 8), 5, 7, 4},
		{list(9), 5, 8, 4},
		{list(9, 8), 2, 7, 7},
		{list(9, 8), 1, 7, 7},
		{list(9, 8), 0, 7, 7},
		{list(3, 2), 100, 1, 0},
		{list(1), 100, 0, 0},
	} {
		if from, to := Older(tt.list, tt.limit); from != tt.from || to != tt.to {
			t.Errorf("%v, %d: from %d to %d, want %d, %d", tt.list, tt.limit, from, to, tt.from, tt.to)
		}
	}
}

// TestWhole: a hole in an existing history is shown, never left out.
func TestWhole(t *testing.T) {
	rec := driver.Record{State: driver.Past, Owner: "a", Token: 1} // counts for nothing
	other := rec
	other.State = driver.Held
	past := []Entry{EntryOf(3, rec, false), EntryOf(2, rec, true), EntryOf(1, other, true)}
	if past[1].Token != 2 || shown(past) != "? a ?" {
		t.Errorf("%+v", past)
	}
	list := []Entry{{Term: driver.Term{Owner: "c", Token: 4}}}
	if got := shown(Whole(list, past)); got != "c ? a ?" {
		t.Errorf("shows %q", got)
	}
	if got := shown(Whole(list, past[:1])); got != "c" {
		t.Errorf("without a history it shows %q", got)
	}
}

// TestLengthen: the history has all of a long reason; its entry is ignored if it is of
// another term.
func TestLengthen(t *testing.T) {
	long := strings.Repeat("x", driver.MaxReasonLen)
	prev := driver.Term{Owner: "a", Token: 3, Since: time.Unix(1, 0), Asked: &driver.Request{Reason: long[:driver.MaxPrevReasonLen]}}
	if !Shortened(&prev) || Shortened(nil) || Shortened(&driver.Term{Token: 3, Asked: &driver.Request{Reason: "short"}}) {
		t.Error("what is shortened is not told from what is not")
	}
	whole := prev
	whole.Asked = &driver.Request{Reason: long}
	another := whole
	another.Owner = "b"
	for _, tt := range []struct {
		read Entry
		want int
	}{{Entry{Term: whole}, len(long)}, {Entry{Term: another}, driver.MaxPrevReasonLen}, {unknown(3), driver.MaxPrevReasonLen}} {
		list := Of(driver.Record{State: driver.Held, Token: 4, Prev: &prev})
		Lengthen(list, tt.read)
		if got := len(list[1].Asked.Reason); got != tt.want {
			t.Errorf("a reason of %d bytes, want %d", got, tt.want)
		}
	}
}
