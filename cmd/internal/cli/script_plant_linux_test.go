// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// hostile is what another client, or somebody with an editor, may have written
// for an owner: codes that colour, name and clear a terminal, lines that look as
// if they were ours, text that runs backwards, and what cannot be seen. (Bytes that are
// no text are for package printable: no record may hold them.)
const hostile = "\x1b[31mPWN\x1b]0;title\a\x1b[2J\nfake  held  root\rover\u202eback\u2028\u2029\u200b\ufeff\u009b31m"

// deface writes hostile text wherever the records of the store have the word
// EVIL, in a key as well:
//
//	deface [-lease DURATION] [-age DURATION] [-drift LOCK]
//
// With a lease, a record that is held gets that, so that it runs out soon; with an
// age, one that was released was so that much earlier. The holder of LOCK keeps a
// bound of a thousandth for clocks.
func deface() error {
	lease := flag.Duration("lease", 0, "")
	drift := flag.String("drift", "", "")
	age := flag.Duration("age", 0, "")
	flag.Parse()
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err != nil {
		return err
	}
	store, err := at.Open()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	ctx := context.Background()
	var all []driver.Record
	for cursor := ""; ; {
		page, err := store.List(ctx, "", cursor)
		if err != nil {
			return err
		}
		all = append(all, page.Records...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	n := 0
	for _, old := range all {
		if old.State == driver.Closed {
			continue // it stays as it is
		}
		rec := old
		for _, field := range []*string{&rec.Owner, &rec.Host, &rec.Label} {
			*field = strings.ReplaceAll(*field, "EVIL", hostile)
		}
		inJSON, err := json.Marshal(hostile)
		if err != nil {
			return err
		}
		rec.Data = bytes.ReplaceAll(rec.Data, []byte("EVIL"), inJSON[1:len(inJSON)-1])
		rec.Requests = nil
		for _, q := range old.Requests {
			rec.Requests = append(rec.Requests, *defaced(&q))
		}
		rec.Asked = defaced(rec.Asked)
		if rec.Prev != nil {
			prev := *rec.Prev
			prev.Asked = defaced(prev.Asked)
			prev.Owner, prev.Host, prev.Label = hostile, hostile, hostile
			rec.Prev = &prev
		}
		if *lease > 0 && rec.State == driver.Held {
			rec.Lease = *lease
		}
		if rec.State == driver.Released {
			rec.Until = rec.Until.Add(-*age)
		}
		if rec.Key == *drift {
			rec.Drift = 0.001
		}
		rec.Version = rand.Text()
		if rec.Key = strings.ReplaceAll(rec.Key, "EVIL", hostile); rec.Key != old.Key || rec.State == driver.Past {
			if err := store.Delete(ctx, old); err != nil {
				return fmt.Errorf("delete %q: %w", old.Key, err)
			}
			_, _, err = store.Claim(ctx, rec)
		} else {
			_, err = store.Swap(ctx, old, rec)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", rec.Key, err)
		}
		n++
	}
	if n == 0 {
		return errors.New("there is nothing to deface")
	}
	return nil
}

func defaced(q *driver.Request) *driver.Request {
	if q == nil {
		return nil
	}
	other := *q
	other.By, other.Reason, other.At = hostile, hostile, time.Now()
	if other.To != "" {
		other.To = hostile
	}
	return &other
}

// spoil makes the records of locks unreadable, in a SQLite file:
//
//	spoil LOCK...
func spoil() (err error) {
	file, isFile := strings.CutPrefix(os.Getenv("TENURE_STORE"), "sqlite:")
	if !isFile {
		return errors.New("TENURE_STORE is no sqlite:FILE")
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, lock := range os.Args[1:] {
		done, err := db.Exec("UPDATE tenure_records SET requests = '{' WHERE key = ?", lock)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d records of %q were changed (%w)", n, lock, err)
		}
	}
	return nil
}
