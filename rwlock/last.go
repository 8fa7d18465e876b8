// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"encoding/json"

	"github.com/tenurelock/tenure"
)

// note is the data of the gate. Whoever gives the gate back without having written, or
// becomes a reader, lays down there who wrote last: the tenure of the gate does not
// tell. It counts for the tenure of its token alone, so nobody needs to clear it.
type note struct {
	Token uint64         `json:"token"`
	Last  *tenure.Tenure `json:"last,omitempty"` // nil: nobody has ever written
}

func (n note) bytes() []byte {
	b, err := json.Marshal(n)
	if err != nil {
		return nil // times of year 10000: the tenure itself tells more than is true
	}
	return b
}

// lastWriter returns the last tenure in which somebody may have written. Tenures are
// those of the gate, the newest first, and data is what the first one has left there.
func lastWriter(data []byte, tenures ...tenure.Tenure) (tenure.Tenure, bool) {
	var n note
	noted := json.Unmarshal(data, &n) == nil && !making(giveBackForgets)
	for i, t := range tenures {
		switch {
		case noted && n.Token == t.Token:
			if n.Last == nil {
				return tenure.Tenure{}, false
			}
			return *n.Last, true
		case noted && t.End == tenure.EndAbandoned && n.Token == t.Token-1:
			return lastWriter(data, tenure.Tenure{Token: n.Token})
		case t.End == tenure.EndAbandoned && i < len(tenures)-1:
			// Nobody has ever believed in that one.
		default:
			return t, true
		}
	}
	return tenure.Tenure{}, false
}

// lastOf returns the last writer by the status of a gate that nobody holds.
func lastOf(st tenure.Status) (tenure.Tenure, bool) {
	if st.Token == 0 {
		return tenure.Tenure{}, false
	}
	tenures := []tenure.Tenure{{
		Owner: st.Owner, Token: st.Token, Host: st.Host, Label: st.Label, Since: st.Since, Until: st.Until,
		End: st.End, Request: st.EndedBy,
	}}
	if st.Previous != nil {
		tenures = append(tenures, st.Previous.Tenure)
	}
	return lastWriter(st.Data, tenures...)
}

// lastBefore returns the last writer before the one that has the gate.
func lastBefore(gate *tenure.Lease) (tenure.Tenure, bool) {
	p, ok := gate.Previous()
	if !ok {
		return tenure.Tenure{}, false
	}
	return lastWriter(p.Data, p.Tenure)
}
