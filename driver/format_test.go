// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// The secret for notifications is in nothing that fmt or slog shows of a record.
func TestNotifyIsNotShown(t *testing.T) {
	rec := Record{Key: "x", Owner: "web-7", Notify: "udp://192.0.2.7:4711 SECRET"}
	var shown bytes.Buffer
	for _, v := range []any{
		rec, &rec,
		[]Record{rec},
		Page{Records: []Record{rec}},
		Lookup{Record: rec},
		&ConflictError{Key: "x", Current: rec},
		map[string]Record{"x": rec},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&shown, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "v", v)
	}
	slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "v", rec)
	for _, secret := range []string{"SECRET", fmt.Sprintf("%x", "SECRET"), "192.0.2.7"} {
		if strings.Contains(shown.String(), secret) {
			t.Errorf("%q is shown in:\n%s", secret, shown.String())
		}
	}
	if got := fmt.Sprintf("%+v", rec); !strings.Contains(got, "Owner:web-7") || !strings.Contains(got, "Notify:(hidden)") {
		t.Errorf("shown as %s", got)
	}
	rec.Notify = ""
	if got, want := fmt.Sprintf("%+v", rec), fmt.Sprintf("%+v", plain(rec)); got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
}
