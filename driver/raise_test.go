// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func to(token uint64) func(*driver.Record) { return func(r *driver.Record) { r.Token = token } }

func TestCheckRaise(t *testing.T) {
	free := state(driver.Released)
	named := driver.Record{Key: "k", Version: "v1", Token: 1}
	high := with(held(), to(driver.MaxToken-1))
	high.Version = "v1"
	for name, tc := range map[string]struct {
		prev, next driver.Record
		refused    string
	}{
		"FromHeld":     {held(), with(held(), free, to(1000)), ""},
		"FromNamed":    {named, with(held(), free, to(1000)), ""},
		"ByOne":        {held(), with(held(), free, to(2)), ""},
		"ToHighest":    {held(), with(held(), free, to(driver.MaxToken)), ""},
		"FromReserved": {with(held(), state(driver.Reserved), func(r *driver.Record) { r.Version = "v1" }), with(held(), free, to(9)), ""},
		"FromKept":     {driver.Record{Key: "k", Token: 1}, with(held(), free, to(9)), ""},

		"Equal":            {held(), with(held(), free), "the token must rise"},
		"Lower":            {high, with(held(), free, to(7)), "the token must rise"},
		"BeyondHighest":    {high, with(held(), free, to(driver.MaxToken+1)), "the highest is"},
		"SameVersion":      {held(), with(held(), free, to(9), func(r *driver.Record) { r.Version = "v1" }), "needs a new one"},
		"OtherKey":         {held(), with(held(), free, to(9), func(r *driver.Record) { r.Key = "l" }), "must be the same"},
		"ToHeld":           {held(), with(held(), to(9)), "it must be"},
		"ToReserved":       {held(), with(held(), state(driver.Reserved), to(9)), "it must be"},
		"ToPast":           {held(), with(held(), state(driver.Past), to(9)), "it must be"},
		"ToClosed":         {named, with(held(), state(driver.Closed), to(9)), "it must be"},
		"FromAlive":        {alive(), with(alive(), free, to(9)), "close it"},
		"FromClosed":       {with(alive(), state(driver.Closed), func(r *driver.Record) { r.Version = "v1" }), with(alive(), free, to(9)), "close it"},
		"FromHistory":      {with(held(), state(driver.Past), func(r *driver.Record) { r.Version = "v1" }), with(held(), free, to(9)), "history"},
		"NoOwner":          {held(), with(held(), free, to(9), func(r *driver.Record) { r.Owner = "" }), "without an owner"},
		"UnderASession":    {held(), with(held(), free, under("s1"), to(9)), "or name no session"},
		"TextIsNoText":     {held(), with(held(), free, to(9), func(r *driver.Record) { r.Host = "\x00" }), "valid UTF-8"},
		"NotAsARaiseSwap":  {named, with(held(), to(1000)), "it must be"},
		"NoLeaseThatReads": {named, with(held(), free, to(9), func(r *driver.Record) { r.Lease = 0 }), "at least a millisecond"},
	} {
		t.Run(name, func(t *testing.T) { wantCheck(t, driver.CheckRaise(tc.prev, tc.next), tc.refused) })
	}
	// What a raise may do a swap may not.
	wantCheck(t, driver.CheckSwap(held(), with(held(), free, to(3))), "stay or rise by one")
}

func TestTokenBelow(t *testing.T) {
	raised := func(token, from uint64) driver.Term {
		return driver.Term{Token: token, End: driver.EndRaised, Asked: &driver.Request{Kind: driver.Raise, Token: from}}
	}
	released := raised(1000, 3)
	released.End = driver.EndReleased
	other := raised(1000, 3)
	other.Asked.Kind = driver.Revoke
	for name, tc := range map[string]struct {
		tenure driver.Term
		want   uint64
	}{
		"First":         {driver.Term{Token: 1}, 0},
		"None":          {driver.Term{}, 0},
		"Third":         {driver.Term{Token: 3, End: driver.EndReleased}, 2},
		"Raised":        {raised(1000, 3), 3},
		"RaisedUpwards": {raised(5, 5), 4},
		"NotRaised":     {released, 999},
		"NotSaid":       {driver.Term{Token: 1000, End: driver.EndRaised}, 999},
		"OfAnotherKind": {other, 999},
	} {
		if got := tc.tenure.PrevToken(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
