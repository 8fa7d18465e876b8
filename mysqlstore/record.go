// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
)

// tableFormat is how this package writes rows. A row of another format is unreadable, and no statement changes it.
const tableFormat = 1

// resting is the state of a lock that is held under a session, as package recordcodec writes it.
const resting = "resting"

// row is a row of the table, or none.
type row struct {
	name, version, data []byte
	format, token       sql.NullInt64
	state, record       sql.NullString
}

func (r *row) targets() []any {
	return []any{&r.name, &r.format, &r.version, &r.token, &r.state, &r.record, &r.data}
}

func (r *row) found() bool { return r.name != nil }

// freed returns the record of a row.
func (r *row) freed() freed {
	if !r.found() {
		return freed{}
	}
	key := string(r.name)
	rec, err := r.decode(key)
	if err != nil {
		if !errors.Is(err, driver.ErrUnreadable) {
			err = fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
		}
		return freed{rec: driver.Record{Key: key}, found: true, err: fmt.Errorf("mysql: the record of %q: %w", key, err)}
	}
	return freed{rec: rec, found: true}
}

func (r *row) decode(key string) (driver.Record, error) {
	if r.format.Int64 != tableFormat {
		return driver.Record{}, fmt.Errorf("its format is %d, and this version knows %d", r.format.Int64, tableFormat)
	}
	rec, err := recordcodec.Decode(r.record.String)
	switch {
	case err != nil:
		return rec, err
	case rec.Key != key || rec.Version != string(r.version) || int64(rec.Token) != r.token.Int64 ||
		stateOf(rec) != r.state.String:
		return rec, errors.New("its columns contradict each other")
	}
	if len(r.data) > 0 {
		rec.Data = r.data
	}
	return rec, nil
}

// values are those of a record for all columns but the name, the format and the data.
func values(rec driver.Record) []any {
	data := rec.Data
	rec.Data = nil
	text := recordcodec.Encode(rec)
	rec.Data = data
	return []any{[]byte(rec.Version), int64(rec.Token), stateOf(rec), rec.Owner, text}
}

func stateOf(rec driver.Record) string {
	if rec.State == driver.Held && rec.Session != "" {
		return resting
	}
	return string(rec.State)
}

// freed is what the table has of a key. The memory of a store keeps what the store itself has released, and no other
// has taken since, as far as it knows. It is a guess: a claim that relies on it names version and token, and the engine
// decides.
type freed struct {
	rec   driver.Record
	found bool
	err   error
}

// longestReleased bounds the data of each remembered lock, in bytes.
const longestReleased = 1 << 10

// View implements [versioned.State].
func (f freed) View() versioned.View {
	return versioned.View{Record: f.rec, Found: f.found, Err: f.err}
}

// Kept implements [versioned.State].
func (f freed) Kept() (freed, bool) {
	if f.rec.State != driver.Released || f.rec.Token >= driver.MaxToken || len(f.rec.Data) > longestReleased {
		return f, false
	}
	f.rec = f.rec.Clone() // the caller has the other one
	return f, true
}

// Overtakes implements [versioned.State].
func (f freed) Overtakes(freed) bool { return false }
