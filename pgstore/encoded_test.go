// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestEncodedByTheRules: values are sent as pgx would send them.
func TestEncodedByTheRules(t *testing.T) {
	types := pgtype.NewMap()
	at := time.Date(2026, 3, 29, 2, 30, 0, 999999999, time.FixedZone("", 3600))
	for _, v := range []struct {
		oid uint32
		arg any
	}{
		{pgtype.TextOID, ""},
		{pgtype.TextOID, "Grüße"},
		{pgtype.Int4OID, int32(tableFormat)},
		{pgtype.Int4OID, int32(math.MinInt32)},
		{pgtype.Int8OID, int64(math.MaxInt64)},
		{pgtype.Int8OID, int64(-1)},
		{pgtype.Float8OID, 0.05},
		{pgtype.TimestamptzOID, at},
		{pgtype.TimestamptzOID, time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)},
		{pgtype.TimestamptzOID, time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC)},
		{pgtype.TimestamptzOID, time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)},
		{pgtype.JSONBOID, []byte(`{"a":1}`)},
		{pgtype.ByteaOID, []byte{0, 1}},
		{pgtype.TextArrayOID, []string{"a", ""}},
	} {
		want, err := types.Encode(v.oid, pgtype.BinaryFormatCode, v.arg, []byte{})
		if err != nil {
			t.Fatal(err)
		}
		// Beside others, so that none lies in the place of another.
		got, err := encoded(types, []uint32{pgtype.Int8OID, v.oid, v.oid, pgtype.Int8OID}, []any{int64(7), v.arg, nil, int64(8)})
		if err != nil || got[1] == nil || !bytes.Equal(got[1], want) {
			t.Errorf("%T %v is sent as %x, %v; want %x", v.arg, v.arg, got, err, want)
		}
		if got[2] != nil || got[0][7] != 7 || got[3][7] != 8 {
			t.Errorf("beside %v there is %x", v.arg, got)
		}
	}
	if _, err := encoded(types, []uint32{pgtype.JSONBOID}, []any{make(chan int)}); err == nil {
		t.Error("a channel is sent")
	}
}
