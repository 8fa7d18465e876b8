// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/faultstore"
)

// What a store says of itself is for those who have all rights, and for the log: others get an
// id, which the log has, too, once a minute.
func TestErrorsOfTheStoreAreForAdmin(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		w.client.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		secret := regexp.MustCompile(`faultstore|injected|fault`)
		ids := map[string]int{} // how many answers have it
		for _, principal := range []string{ci, ops, alice} {
			for _, c := range calls("jobs/a") {
				r := c.r(principal)
				if strings.Contains(r.URL.Path, "events") {
					continue // a stream, which has its problem as an event
				}
				a := w.do(r)
				if a.status != 503 || a.kind() == "no-leader" {
					continue
				}
				if got := secret.MatchString(a.text); got != (principal == alice) {
					w.Errorf("%s: it shows what the store says, %v: %s", r.URL, got, a.text)
				}
				id := regexp.MustCompile(`error ([0-9a-f]{8})`).FindStringSubmatch(a.text)
				if id == nil || !strings.Contains(w.logged(), "id="+id[1]) {
					w.Errorf("%s: no id that is in the log: %s\n%s", r.URL, a.text, w.logged())
				} else {
					ids[id[1]]++
				}
			}
		}
		if len(ids) == 0 {
			w.Error("no call failed")
		}
		for id, answers := range ids {
			if n := strings.Count(w.logged(), "id="+id); n > 3 || n >= answers && n > 1 {
				w.Errorf("%d lines for %s, which %d answers have", n, id, answers)
			}
		}
	})
}
