// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"slices"
	"strings"
	"testing"
)

// The check itself must see what is wrong.
func TestHoldsAreChecked(t *testing.T) {
	deaths := map[string]Death{"dead": {At: 100, Holds: 50}, "late": {At: 1000, Holds: 50}}
	for _, tt := range []struct{ name, log, want string }{
		{"one after the other", "begin a 1 1\nend a 5\nbegin b 5\nend b 9\nbegin a 10 2\nend a 11", ""},
		{"written late", "begin b 5\nbegin a 1 1\nend a 5\nend b 9", ""},
		{"two at once", "begin a 1\nbegin b 4\nend a 5\nend b 9", "b began 1ns before a ended"},
		{"one within another", "begin a 1\nend a 9\nbegin b 2\nend b 3\nbegin c 8\nend c 9", "b began 7ns before a ended|c began 1ns before a ended"},
		{"token stands", "begin a 1 7\nend a 2\nbegin b 3\nend b 4\nbegin c 5 7\nend c 6", "token 7 of c after 7 of a"},
		{"token falls", "begin a 1 7\nend a 2\nbegin c 5 6\nend c 6", "token 6 of c after 7 of a"},
		{"killed", "begin dead 90\nbegin a 100\nend a 101", ""},
		{"killed, overlapped", "begin dead 90\nbegin a 99\nend a 101", "a began 1ns before dead ended"},
		{"killed late", "begin late 90\nbegin a 140\nend a 141", ""},
		{"killed late, overlapped", "begin late 90\nbegin a 139\nend a 141", "a began 1ns before late ended"},
		{"no end", "begin a 1", "a lives"},
		{"twice", "begin a 1\nbegin a 2", "not in its place"},
		{"end alone", "end a 1", "not in its place"},
		{"half a line", "begin a", "line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := Read(strings.NewReader(tt.log), deaths)
			found := Wrong(all)
			if err != nil {
				found = append(found, err.Error())
			}
			var want []string
			if tt.want != "" {
				want = strings.Split(tt.want, "|")
			}
			if !slices.EqualFunc(found, want, strings.Contains) {
				t.Errorf("found %q, want %q", found, want)
			}
		})
	}
}
