// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
)

// How a tenure ended, in [Tenure.End].
const (
	EndReleased     = string(driver.EndReleased)     // its holder released the lock
	EndExpired      = string(driver.EndExpired)      // it showed no life for its lease; another one took over
	EndSteppedDown  = string(driver.EndSteppedDown)  // it was asked to stop
	EndHandedOver   = string(driver.EndHandedOver)   // it was asked to make way for another one
	EndStalled      = string(driver.EndStalled)      // its work showed no progress
	EndStopTimeout  = string(driver.EndStopTimeout)  // its work did not stop in time
	EndAbandoned    = string(driver.EndAbandoned)    // its acquire was given up; nothing was done under it
	EndReleasedDead = string(driver.EndReleasedDead) // dead, and released by an operator
	EndRevoked      = string(driver.EndRevoked)      // taken from it by an operator
	EndFailed       = string(driver.EndFailed)       // released by its holder, whose work had failed by itself
	EndCrashed      = string(driver.EndCrashed)      // its process had ended for certain
	EndRaised       = string(driver.EndRaised)       // no holder's: an operator raised the token, after a loss of the store
)

// Tenure is one holder's time with a lock, from grant to end.
type Tenure struct {
	Owner       string
	Token       uint64
	Host, Label string
	// Since and Until are by the wall clock of the holder. Until is zero while the
	// tenure goes on, and where its end cannot be known: a holder that crashed had
	// stopped when the next tenure began, and no more is known of it.
	Since, Until time.Time
	// End says how it ended, empty while it goes on.
	End string
	// Request is what the holder was asked, by whom and why, if it was asked: the
	// request that ended the tenure or, if the holder crashed, one that it did not
	// answer.
	Request *Request
	// Unknown says that there was a tenure under this token, and that nothing else
	// is known of it. Its holder and the next one crashed before they had written
	// it down; or, at the end of the list, the lock had no history yet, or the
	// tenure is not kept any more.
	Unknown bool
}

// Ended says in words for people how the tenure ended, as the command and the dashboard
// show it; it is empty while it goes on. A program compares End.
func (t Tenure) Ended() string {
	switch t.End {
	case EndHandedOver:
		switch q := t.Request; {
		case q == nil: // to whom is not known, nor where an older version has written it without the label
		case q.ToLabel != "":
			return "handed over to label " + q.ToLabel
		case q.To != "":
			return "handed over to " + q.To
		}
	case EndExpired:
		if t.Request != nil {
			return "expired, asked in vain"
		}
	case EndAbandoned:
		return "given up before any work"
	case EndStalled:
		return "stalled: no progress"
	case EndStopTimeout:
		return "did not stop in time"
	case EndReleasedDead:
		return "released as dead"
	case EndRaised:
		return "token raised, held by nobody"
	}
	return strings.ReplaceAll(t.End, "_", " ")
}

func tenureOf(t *driver.Tenure) Tenure {
	return Tenure{
		Owner: t.Owner, Token: t.Token, Host: t.Host, Label: t.Label,
		Since: t.Since, Until: t.Until, End: string(t.End), Request: requestOf(t.Asked),
	}
}

// Previous is the tenure before another one, and what it left.
type Previous struct {
	Tenure
	// Data is what it left, in [Lease.Previous] alone. It is nil if the new holder
	// wrote data of its own and the reply that showed the old data was lost.
	Data []byte
}

func previous(g protocol.Grant, replaced bool) *Previous {
	p := previousOf(g.Record.Prev)
	switch {
	case p == nil:
	case g.Former.Key != "":
		p.Data = g.Former.Data
	case !replaced:
		p.Data = g.Record.Data
	}
	return p
}

func previousOf(t *driver.Tenure) *Previous {
	if t == nil {
		return nil
	}
	return &Previous{Tenure: tenureOf(t)}
}
