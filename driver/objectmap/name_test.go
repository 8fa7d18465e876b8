// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Two keys never have one name, wherever a key is cut: two locks would be one. The name of a
// key leads back to it, the names below a prefix begin as namesOf says, and no part of a name
// is hidden or a folder of a file system's own.
func TestNamesComeBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := []string{".", ".", "..", "%", "%2E", "~", "~/", "/", "k", "kkkkkkkkkkkkkkkk", "ü"}
	keys := map[string]string{}
	for range 20000 {
		var b strings.Builder
		for n := []int{1, 2, 3, 199, 200, 201, 202, 400, 401, 860}[random.IntN(10)] - random.IntN(2); b.Len() < n; {
			if n > 10 && b.Len() < n-8 {
				b.WriteString(letters[8+random.IntN(2)])
			} else {
				b.WriteString(letters[random.IntN(len(letters))])
			}
		}
		key := b.String()
		if key == "" {
			continue
		}
		name := nameOf(key)
		if other, ok := keys[name]; ok && other != key {
			t.Fatalf("%q and %q are both %q", key, other, name)
		}
		keys[name] = key
		if strings.HasPrefix(name, hashed) {
			continue
		}
		if back, ok := keyOf(name); !ok || back != key {
			t.Fatalf("%q is %q, which is the name of %q, %t", key, name, back, ok)
		}
		if prefix := key[:random.IntN(len(key))+1]; !strings.HasPrefix(name, namesOf(prefix)) {
			t.Fatalf("%q is %q, which does not begin as the names below %q", key, name, prefix)
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part[0] == '.' {
				t.Fatalf("%q is %q, which has a part %q", key, name, part)
			}
		}
	}
}
