// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// encode returns the values of the columns. Data that are nil are NULL.
func encode(rec driver.Record) []sqldriver.Value {
	row := recordcodec.RowOf(rec)
	values := []sqldriver.Value{row.Name, row.Version, row.Token, row.State, row.Owner, row.Text, nil}
	if row.Data != nil {
		values[len(values)-1] = row.Data
	}
	return values
}

// decode returns the record of a row. Its error matches driver.ErrUnreadable
// and names the lock; the record has its key even then. No value is ever
// converted: a table that others have created may not be STRICT.
func decode(values []sqldriver.Value) (driver.Record, error) {
	var row recordcodec.Row
	for i, to := range []any{&row.Name, &row.Version, &row.Token, &row.State, &row.Owner, &row.Text, &row.Data} {
		ok := false
		switch to := to.(type) {
		case *string:
			*to, ok = values[i].(string)
		case *int64:
			*to, ok = values[i].(int64)
		case *[]byte:
			var data []byte
			if data, ok = values[i].([]byte); ok {
				*to = append([]byte{}, data...)
			}
			ok = ok || values[i] == nil
		}
		if !ok {
			return driver.Record{Key: row.Name}, fmt.Errorf("%w: row %.1100q: column %s holds %.40q, of another type",
				driver.ErrUnreadable, row.Name, columns[i], fmt.Sprint(values[i]))
		}
	}
	return row.Record()
}
