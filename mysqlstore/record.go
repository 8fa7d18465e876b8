// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"database/sql"
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
)

// row is a row of the table, or none.
type row struct {
	name, version, data []byte
	token               sql.NullInt64
	state, owner, text  sql.NullString
}

func (r *row) targets() []any {
	return []any{&r.name, &r.version, &r.token, &r.state, &r.owner, &r.text, &r.data}
}

func (r *row) found() bool { return r.name != nil }

// freed returns the record of a row.
func (r *row) freed() freed {
	if !r.found() {
		return freed{}
	}
	of := recordcodec.Row{
		Name: string(r.name), Version: string(r.version), Token: r.token.Int64, State: r.state.String,
		Owner: r.owner.String, Text: r.text.String,
	}
	if len(r.data) > 0 {
		of.Data = r.data
	}
	rec, err := of.Record()
	if err != nil {
		err = fmt.Errorf("mysql: %w", err)
	}
	return freed{rec: rec, found: true, err: err}
}

// values are those of a record for all columns but the name and the data.
func values(rec driver.Record) []any {
	row := recordcodec.RowOf(rec)
	return []any{[]byte(row.Version), row.Token, row.State, row.Owner, row.Text}
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
