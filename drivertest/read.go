// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

func testGet(t *testing.T, e *env) {
	t.Run("Absent", func(t *testing.T) {
		for _, c := range []driver.Consistency{driver.Strong, driver.Eventual} {
			if rec, err := e.clients[0].Get(t.Context(), e.key(), c); !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("Get of an absent key = %s, %v; want ErrNotFound", brief(rec), err)
			}
		}
	})

	// A strong read sees each write that was answered, from any client.
	t.Run("Strong", func(t *testing.T) {
		rec := e.claim(t, e.clients[0], e.held(e.key()))
		for i := range 30 {
			e.wantStored(t, rec)
			rec = e.swap(t, e.clients[i%len(e.clients)], rec, e.beat(rec))
		}
	})

	t.Run("Eventual", func(t *testing.T) {
		rec := e.claim(t, e.clients[0], e.held(e.key()))
		for i := range 30 {
			rec = e.swap(t, e.clients[0], rec, e.beat(rec))
			reader := e.clients[i%len(e.clients)]
			e.eventually(t, func() string {
				got, err := reader.Get(t.Context(), rec.Key, driver.Eventual)
				if err != nil {
					return err.Error()
				}
				return e.diff(got, rec)
			})
		}
	})
}

// testServers reads records through one server that were written through another. A
// strong read that one server answers by itself shows old records: a held lock as
// free, a living session as absent.
func testServers(t *testing.T, e *env) {
	if len(e.h.Servers) < 2 {
		t.Skip("the harness has one server: it cannot show a strong read that is stale")
	}

	t.Run("Strong", func(t *testing.T) {
		const rounds = 10
		e.eachPair(t, func(t *testing.T, writer, reader *client) {
			for range rounds {
				key := e.key()
				e.near(t, reader, key, nil)
				rec := e.claim(t, writer, e.held(key))
				states := map[string]driver.Record{rec.Version: rec}
				for _, next := range []func(driver.Record) driver.Record{e.beat, e.asked, e.answered, e.taken, e.beat, e.released} {
					// What a server has near by is as old as can be when it counts.
					e.near(t, reader, key, states)
					e.wantEqual(t, "strong read through another server", e.get(t, reader, key), rec)
					rec = e.swap(t, writer, rec, next(rec))
					states[rec.Version] = rec
				}
				e.wantEqual(t, "strong read through another server", e.get(t, reader, key), rec)
				e.remove(t, writer, rec)
				e.near(t, reader, key, states)
				if rec, err := reader.Get(t.Context(), key, driver.Strong); !errors.Is(err, driver.ErrNotFound) {
					t.Fatalf("strong read of a deleted key through another server: %s, %v", brief(rec), err)
				}
			}
		})
	})

	t.Run("Batch", func(t *testing.T) {
		if _, ok := e.clients[0].Store.(driver.BatchGetter); !ok {
			t.Skip("the store does not read in batches")
		}
		e.eachPair(t, func(t *testing.T, writer, reader *client) {
			rec := e.claim(t, writer, e.held(e.key()))
			for range 10 {
				e.near(t, reader, rec.Key, nil)
				rec = e.swap(t, writer, rec, e.beat(rec))
				found, err := reader.Store.(driver.BatchGetter).GetBatch(t.Context(), []string{rec.Key}, driver.Strong)
				if err != nil || len(found) != 1 || found[0].Err != nil {
					t.Fatalf("GetBatch: %+v, %v", found, err)
				}
				e.wantEqual(t, "strong batch through another server", found[0].Record, rec)
			}
		})
	})

	// The loser of a race sees the winner, whatever its own server knows so far.
	t.Run("Conflict", func(t *testing.T) {
		e.eachPair(t, func(t *testing.T, writer, loser *client) {
			for range 10 {
				rec := e.claim(t, writer, e.held(e.key()))
				e.near(t, loser, rec.Key, nil)
				next := e.swap(t, writer, rec, e.beat(rec))
				_, err := loser.Swap(t.Context(), rec, e.beat(rec))
				e.wantConflict(t, "Swap through another server", err, next)
				_, _, err = loser.Claim(t.Context(), e.held(rec.Key))
				e.wantConflict(t, "Claim through another server", err, next)
			}
		})
	})
}

// eachPair runs check with each server as the writer, and each other server as the reader.
func (e *env) eachPair(t *testing.T, check func(t *testing.T, writer, reader *client)) {
	t.Helper()
	for w, writer := range e.clients[:len(e.h.Servers)] {
		for r, reader := range e.clients[:len(e.h.Servers)] {
			if r != w {
				t.Run(fmt.Sprintf("%dTo%d", w, r), func(t *testing.T) { check(t, writer, reader) })
			}
		}
	}
}

// near makes an eventual read, which fails the test unless it shows nothing or one of
// the states, if there are any.
func (e *env) near(t *testing.T, c *client, key string, states map[string]driver.Record) {
	t.Helper()
	rec, err := c.Get(t.Context(), key, driver.Eventual)
	switch want, known := states[rec.Version]; {
	case errors.Is(err, driver.ErrNotFound):
	case err != nil:
		t.Fatalf("eventual Get(%q): %v", key, err)
	case states != nil && !known:
		t.Fatalf("an eventual read shows %s, which was never written", brief(rec))
	case states != nil:
		e.wantEqual(t, "eventual read", rec, want)
	}
}

func testList(t *testing.T, e *env) {
	a := e.clients[0]

	// Enough for several pages of most engines' sizes would be slow to create;
	// a harness that can sets a small page size.
	t.Run("OrderAndPrefix", func(t *testing.T) {
		stored := map[string]driver.Record{}
		for _, group := range []string{"jobs/", "jobs0", "jobs", "Jobs/", "job", "zeta/"} {
			for i := range 9 {
				rec := e.claim(t, a, e.held(fmt.Sprintf("%s%d", group, i*7%10)))
				if i%3 == 0 {
					rec = e.swap(t, a, rec, e.released(rec))
				}
				stored[rec.Key] = rec
			}
		}
		for _, prefix := range []string{"", "jobs/", "jobs", "job", "j", "Jobs/", "jobs/4", "jobs/44", "zeta/", "zz"} {
			e.wantList(t, prefix, stored)
		}
		// A list may begin after any key, so that a reader of a part of it can read the rest.
		for _, after := range []string{"jobs/4", "jobs/", "jobs/44", "jobs/\u00fc", "job", "J", "jobs0", "zz"} {
			for _, prefix := range []string{"", "jobs/"} {
				rest := maps.Clone(stored)
				maps.DeleteFunc(rest, func(key string, _ driver.Record) bool { return key <= after })
				e.wantListAfter(t, prefix, after, rest)
			}
		}
	})
}

// wantList fails the test unless a List with prefix shows, through every
// client, those of the stored records whose key has it, in order.
func (e *env) wantList(t *testing.T, prefix string, stored map[string]driver.Record) {
	t.Helper()
	e.wantListAfter(t, prefix, "", stored)
}

// wantListAfter does so for a List that begins after a key.
func (e *env) wantListAfter(t *testing.T, prefix, after string, stored map[string]driver.Record) {
	t.Helper()
	var want []string
	for key := range stored {
		if strings.HasPrefix(key, prefix) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	for _, c := range e.clients {
		e.eventually(t, func() string {
			var got []string
			var wrong string
			for _, rec := range e.list(t, c, prefix, after) {
				got = append(got, rec.Key)
				if diff := e.diff(rec, stored[rec.Key]); diff != "" {
					wrong = fmt.Sprintf("List shows %q with %s", rec.Key, diff)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Sprintf("List(%.20q) after %.20q shows %.20q, want %.20q", prefix, after, got, want)
			}
			return wrong
		})
	}
}

// list returns the records of all pages after a key.
func (e *env) list(t *testing.T, c driver.Store, prefix, after string) []driver.Record {
	t.Helper()
	records, unreadable := e.listAll(t, c, prefix, after)
	for key, err := range unreadable {
		t.Errorf("List(%q): %q is unreadable: %v", prefix, key, err)
	}
	return records
}

func (e *env) listAll(t *testing.T, c driver.Store, prefix, cursor string) ([]driver.Record, map[string]error) {
	t.Helper()
	// More pages than any check stores records: a cursor that never ends.
	const most = 10000
	var records []driver.Record
	unreadable := map[string]error{}
	for range most {
		page, err := c.List(t.Context(), prefix, cursor)
		if err != nil {
			t.Fatalf("List(%q, %q): %v", prefix, cursor, err)
		}
		records = append(records, page.Records...)
		for key, err := range page.Unreadable {
			unreadable[key] = err
		}
		if cursor = page.Cursor; cursor == "" {
			return records, unreadable
		}
	}
	t.Fatalf("List(%q) does not end", prefix)
	return nil, nil
}

// oddKeys are keys that some engine, somewhere, folds, trims, escapes, splits
// or orders in its own way. Some are equal but for what an engine might fold.
// Those below driver.OwnPrefix are no different from others to a store.
// U+0000 is not among them: PostgreSQL's text has no room for it.
var oddKeys = []string{
	"a", "A", "a ", " a", " ", "  ", "a\t", "a\n", "a\r\n", "ab", "a/b", "a//b", "/a", "a/", "/", "//", ".", "..", "a/../b",
	"a/./b", "a/..", "a/.", "a.", "a..", "a.b", "a%2E", "%", "a%2Fb", "a%2fb", "a+b", "a%20b", "_", "a_", "*", "a*", "?", "[a]",
	"{a}", "~", "!", "#", "$1", "&", "=", ":", "a:b", "a|b", "a;b", "a,b", "@", "^", "'", "''", `"`, `\`, `\\`, `\n`, "`", "--",
	"'; DROP TABLE tenure; --", "<a>", "\x01", "\x1f", "\x7f", "\u0085", "\u200b", "\ufeffa", "\u00e9", "e\u0301", "E\u0301", "ß", "ss", "ı", "i", "I", "İ",
	"世界", "👋🏽", "\ufffd", "\ufffe", "\U0010ffff", "0", "00", "0x0", "1", "1.0", "null", "true", "NaN", "-", "tenure", driver.OwnPrefix, driver.OwnPrefix + "a",
	driver.OwnPrefix + "history/a/0000000000000000001", "Tenure/", "tenure/a/", "__proto__", "zookeeper", "CON",
}

func testKeys(t *testing.T, e *env) {
	keys := append([]string{}, oddKeys...)
	part := strings.Repeat("k", 200) // some stores cut keys into parts of so many bytes
	keys = append(keys,
		part, part+"k", part+part, part+".", part+"..", part[1:]+".",
		strings.Repeat("k", driver.MaxKeyLen), strings.Repeat("k", driver.MaxKeyLen-1)+"l",
		strings.Repeat("k", driver.MaxKeyLen-1), strings.Repeat("/", driver.MaxKeyLen),
		strings.Repeat("k", driver.MaxNameLen), strings.Repeat("k", driver.MaxNameLen+1),
		driver.OwnPrefix+strings.Repeat("k", driver.MaxKeyLen-len(driver.OwnPrefix)),
		strings.Repeat("%", driver.MaxKeyLen), strings.Repeat("\x01", driver.MaxKeyLen),
		strings.Repeat("ü", driver.MaxKeyLen/2), strings.Repeat("a/", driver.MaxKeyLen/2),
	)
	stored := map[string]driver.Record{}

	// Each key is granted under the first token, though all the others exist:
	// so no two keys are one.
	t.Run("Distinct", func(t *testing.T) {
		for i, key := range keys {
			c := e.clients[i%len(e.clients)]
			now, _, err := c.Claim(t.Context(), e.held(key))
			if err != nil {
				t.Errorf("Claim(%q): %v", key, err)
				continue
			}
			if now.Token != 1 || now.Key != key {
				t.Errorf("Claim(%q) = %s; want the key under token 1", key, brief(now))
			}
			stored[key] = now
		}
		for _, rec := range stored {
			e.wantStored(t, rec)
		}
	})

	t.Run("EachWrite", func(t *testing.T) {
		for key, rec := range stored {
			_, _, err := e.clients[1].Claim(t.Context(), e.held(key))
			e.wantConflict(t, "Claim", err, rec)
			rec = e.swap(t, e.clients[2], rec, e.beat(rec))
			rec = e.swap(t, e.clients[0], rec, e.released(rec))
			stored[key] = e.claim(t, e.clients[1], e.held(key))
			if got := stored[key].Token; got != rec.Token+1 {
				t.Errorf("%q: token %d, want %d", key, got, rec.Token+1)
			}
		}
	})

	t.Run("List", func(t *testing.T) {
		e.wantList(t, "", stored)
		for _, prefix := range []string{
			"a", "a/", "a.", "a..", ".", "A", "%", "_", "*", "?", "[", `\`, "'", "\ufeff", "e", " ", "/", part + ".",
			driver.OwnPrefix, strings.Repeat("k", 1000),
		} {
			e.wantList(t, prefix, stored)
		}
	})

	t.Run("Delete", func(t *testing.T) {
		for key, rec := range stored {
			if err := e.clients[0].Delete(t.Context(), rec); err != nil {
				t.Errorf("Delete(%q): %v", key, err)
			}
			if _, err := e.clients[1].Get(t.Context(), key, driver.Strong); !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("Get(%q) after Delete: %v, want ErrNotFound", key, err)
			}
			delete(stored, key)
		}
		e.wantList(t, "", stored)
	})
}
