// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// The rules of [Every] are here: no clock, no store, no goroutine. Instants are
// readings of [elapsed].

// periods is the data of the lock of [Every].
type periods struct {
	Kind string `json:"ledger"`
	// ID is new with every ledger: the numbers of another one mean nothing.
	ID string `json:"id"`
	// N is how many periods were begun.
	N int64 `json:"n"`
	// Age is a lower bound of the time since period N was begun, in milliseconds.
	Age    int64   `json:"age"`
	Period int64   `json:"period,omitempty"` // milliseconds; for people
	Runs   []entry `json:"runs,omitempty"`
}

func newPeriods() periods { return periods{Kind: everyKind, ID: rand.Text()} }

// parseEvery reads the data of a lock. No data is a ledger without an ID.
func parseEvery(data []byte, token uint64) (periods, error) {
	var l periods
	if len(data) == 0 {
		return periods{}, nil
	}
	err := json.Unmarshal(data, &l)
	switch {
	case err != nil:
	case l.Kind != everyKind:
		err = fmt.Errorf("its kind is %.40q: it must be %q", l.Kind, everyKind)
	case l.ID == "" || l.N < 0 || l.Age < 0 || l.Age > maxAge.Milliseconds():
		err = fmt.Errorf("its id is %.40q, its number %d, its age %d", l.ID, l.N, l.Age)
	default:
		err = checkRuns(l.Runs, token)
	}
	if err != nil {
		return periods{}, unreadable(data, err)
	}
	return l, nil
}

func (l periods) age() time.Duration { return time.Duration(l.Age) * time.Millisecond }

func (l periods) bytes() []byte {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) //nolint:forbidigo // unreachable: numbers and strings
	}
	return b
}

// since is what a process knows of the age of a period: it was at least Age at the
// instant At of this process's clock.
type since struct {
	id  string
	n   int64
	age time.Duration
	at  time.Duration
}

// noted is what a process knows after it has read the ledger. Received is an instant
// after the reply: earlier time does not count.
func (l periods) noted(received time.Duration) since {
	return since{id: l.ID, n: l.N, age: l.age(), at: received}
}

// older returns the greater age of the two for the period of s. An age of another period
// or ledger does not count.
func (s since) older(other since) since {
	if other.id != s.id || other.n != s.n || other.now(s.at) <= s.age {
		return s
	}
	return since{id: s.id, n: s.n, age: other.now(s.at), at: s.at}
}

// newer returns the one with the later period. An age of another ledger is older.
func (s since) newer(other since) since {
	if other.id == s.id && other.n > s.n {
		return other
	}
	return s
}

// now returns a lower bound of the age.
func (s since) now(now time.Duration) time.Duration { return s.age + now - s.at }

// aged returns the ledger with the age of now.
func (l periods) aged(s since, now time.Duration) periods {
	l.Age = min(s.now(now), maxAge).Milliseconds()
	return l
}

// claimed returns the ledger with the next period begun, and with the age that is carried
// over to it.
func (l periods) claimed(age, period time.Duration, catchUp int, e entry) periods {
	l.N++
	l.Age = min(age-period, carried(period, catchUp)).Milliseconds()
	e.Slot = l.N
	l.Runs = appended(l.Runs, e)
	return l
}

// carried returns how much of a late period counts for the next one at most.
func carried(period time.Duration, catchUp int) time.Duration {
	if most := maxAge / period; time.Duration(catchUp) > most {
		return most * period
	}
	return time.Duration(catchUp) * period
}

// maxAge keeps the sum of an age and of the life of a process within a duration.
const maxAge = 20 * maxPeriod

// end writes down how the newest run ended.
func (l periods) end(e entry) periods {
	l.Runs = append(l.Runs[:len(l.Runs)-1:len(l.Runs)-1], e)
	return l
}
