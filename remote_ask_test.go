// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tenurelock/tenure"
)

// TestRemoteAskNamesWhoAsks: the history has whom the request names, else the client.
func TestRemoteAskNamesWhoAsks(t *testing.T) {
	for by, want := range map[string]string{"ops": "ops", "": "a"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.machine("b").mustAcquire("x", nil)
			a := w.machine("a")
			err := a.Remote().Ask(t.Context(), tenure.RemoteRequest{Name: "x", Kind: tenure.RequestRevoke, By: by, Reason: "it hangs"})
			if err != nil {
				t.Fatal(err)
			}
			past, err := a.History(t.Context(), "x")
			if err != nil || len(past) == 0 || past[0].Request == nil {
				t.Fatalf("history %+v, %v", past, err)
			}
			if q := past[0].Request; q.By != want || q.Reason != "it hangs" {
				t.Errorf("%q asks, and says %q; want %q", q.By, q.Reason, want)
			}
		})
	}
}

func TestRemoteAskRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.machine("b").mustAcquire("x", nil)
		a := w.machine("a")
		for what, q := range map[string]tenure.RemoteRequest{
			"no kind":          {},
			"another kind":     {Kind: "steal"},
			"an heir of none":  {Kind: tenure.RequestStepDown, To: "c"},
			"a label of none":  {Kind: tenure.RequestRevoke, ToLabel: "v2"},
			"no heir":          {Kind: tenure.RequestHandOver},
			"two heirs":        {Kind: tenure.RequestHandOver, To: "c", ToLabel: "v2"},
			"a line end":       {Kind: tenure.RequestStepDown, By: "ops\nroot"},
			"a name too long":  {Kind: tenure.RequestStepDown, By: strings.Repeat("o", 1025)},
			"a reason no text": {Kind: tenure.RequestStepDown, Reason: "\n"},
		} {
			q.Name = "x"
			err := a.Remote().Ask(t.Context(), q)
			t.Log(what)
			want(t, err, tenure.ErrInvalid)
		}
		if st, err := a.Status(t.Context(), "x"); err != nil || st.Request != nil || !st.Held {
			t.Errorf("the holder was asked: %+v, %v", st, err)
		}
	})
}
