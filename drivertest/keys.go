// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// oddKeys are keys that some engine, somewhere, folds, trims, escapes, splits
// or orders in its own way. Some are equal but for what an engine might fold.
// Those below driver.OwnPrefix are no different from others to a store.
// U+0000 is not among them: PostgreSQL's text has no room for it.
var oddKeys = []string{
	"a", "A", "a ", " a", " ", "  ", "a\t", "a\n", "a\r\n", "ab", "a/b", "a//b", "/a", "a/", "/", "//", ".", "..", "a/../b",
	"a/./b", "%", "a%2Fb", "a%2fb", "a+b", "a%20b", "_", "a_", "*", "a*", "?", "[a]", "{a}", "~", "!", "#", "$1", "&", "=", ":",
	"a:b", "a|b", "a;b", "a,b", "@", "^", "'", "''", `"`, `\`, `\\`, `\n`, "`", "--", "'; DROP TABLE tenure; --", "<a>", "\x01", "\x1f",
	"\x7f", "\u0085", "\u200b", "\ufeffa", "\u00e9", "e\u0301", "E\u0301", "ß", "ss", "ı", "i", "I", "İ", "世界", "👋🏽", "\ufffd",
	"\ufffe", "\U0010ffff", "0", "00", "0x0", "1", "1.0", "null", "true", "NaN", "-", "tenure", driver.OwnPrefix, driver.OwnPrefix + "a",
	driver.OwnPrefix + "history/a/0000000000000000001", "Tenure/", "tenure/a/", "__proto__", "zookeeper", "CON",
}

func testKeys(t *testing.T, e *env) {
	keys := append([]string{}, oddKeys...)
	keys = append(keys,
		strings.Repeat("k", driver.MaxKeyLen), strings.Repeat("k", driver.MaxKeyLen-1)+"l",
		strings.Repeat("k", driver.MaxKeyLen-1), strings.Repeat("/", driver.MaxKeyLen),
		strings.Repeat("k", driver.MaxNameLen), strings.Repeat("k", driver.MaxNameLen+1),
		driver.OwnPrefix+strings.Repeat("k", driver.MaxKeyLen-len(driver.OwnPrefix)),
		strings.Repeat("%", driver.MaxKeyLen), strings.Repeat("\x01", driver.MaxKeyLen),
		strings.Repeat("ü", driver.MaxKeyLen/2), strings.Repeat("a/", driver.MaxKeyLen/2),
	)
	stored := map[string]driver.Record{}

	// Each key is granted under the first token, though all the others are
	// there: so no two are taken for one.
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
		for _, prefix := range []string{"a", "a/", "A", "%", "_", "*", "?", "[", `\`, "'", "\ufeff", "e", " ", "/", driver.OwnPrefix, strings.Repeat("k", 1000)} {
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
