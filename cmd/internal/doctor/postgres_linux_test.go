// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
)

// Behind a pooler that pools transactions nobody hears of a release, but at the server.
func TestPostgresPooler(t *testing.T) {
	database := enginetest.Database(t, enginetest.PostgreSQL(t))
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := pgstore.CreateTable(t.Context(), conn, ""); err != nil {
		t.Fatal(err)
	}
	pooled := enginetest.StartPgBouncer(t, database).URL + "&default_query_exec_mode=exec"
	examined := func(url string) (string, error) {
		at, err := storeurl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		lines, _, err := examine(t, Patient{Diagnose: at.Diagnose, Open: at.Open, Options: options(t, tenure.Options{LeaseDuration: time.Minute})})
		return lines, err
	}
	lines, err := examined(pooled)
	if err != nil {
		t.Errorf("%v:\n%s", err, lines)
	}
	wantLines(t, lines, "ok store: can be read and written", "warn watch: a release cannot be watched for: postgres: LISTEN is deaf here")
	for listen, want := range map[string]string{
		"off": "ok watch: this store has none",
		strings.NewReplacer("?", "%3F", "=", "%3D").Replace(database): "ok watch: a waiter hears of a release after",
	} {
		lines, err := examined(pooled + "&listen=" + listen)
		if err != nil {
			t.Errorf("%v:\n%s", err, lines)
		}
		wantLines(t, lines, want)
	}
}
