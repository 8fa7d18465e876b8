// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"encoding/json"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/slots"
)

// note is the data of the gate. A writer that releases the gate without having written,
// or becomes a reader, stores there which owner wrote last, and in which epoch: the
// gate's own term does not show that. A note counts only for the term of its token, so it
// need not be cleared.
type note struct {
	Token uint64       `json:"token"`
	Epoch uint64       `json:"epoch"`          // 0: there was no writer
	Last  *tenure.Term `json:"last,omitempty"` // nil: there was no writer
}

func (n note) bytes() []byte {
	b, err := json.Marshal(n)
	if err != nil {
		return nil // times of year 10000: the term itself tells more than is true
	}
	return b
}

// wrote returns what a gate says of the last writer: the last term in which a holder may
// have written. Readers that were there before a gate was given back read beside those
// who come after that, so they have one epoch, or a fence would refuse the former.
//
// T is the latest term of the gate that has ended, before is the term before it (nil if
// unknown), and data is what they have left there. The gate shows two terms only. If both
// were abandoned, assume that the term before them wrote.
func wrote(data []byte, t tenure.Term, before *tenure.Term) note {
	t.Data = nil // a note would have all notes before it in it
	var n note
	noted := json.Unmarshal(data, &n) == nil
	switch {
	case t.Token == 0:
		return note{}
	case noted && n.Token == t.Token:
		return n
	case t.End != tenure.EndAbandoned:
		return note{t.Token, t.Token, &t}
	case noted && n.Token == t.Token-1: // t was abandoned
		return n
	case t.Token == 1:
		return note{}
	case before != nil && before.End == tenure.EndAbandoned: // so was the term before it
		return wrote(data, *before, nil)
	case before != nil:
		t = *before
	default:
		t.Token--
	}
	return note{t.Token, t.Token, &t}
}

// lastOf returns what is known of the last writer, by the status of a gate that no
// process holds.
func lastOf(st tenure.Status) note {
	t := tenure.Term{
		Owner: st.Owner, Token: st.Token, Host: st.Host, Label: st.Label, Since: st.Since, Until: st.Until,
		End: st.End, Request: st.EndedBy,
	}
	return wrote(st.Data, t, st.Previous)
}

// lastBefore returns what is known of the last writer before the gate's holder.
func lastBefore(gate slots.Lock) note {
	p, ok := gate.Previous()
	if !ok {
		return note{}
	}
	return wrote(p.Data, p, nil)
}
