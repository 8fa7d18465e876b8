// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A template that fails is a fault of the server, and half of its page is not sent.
func TestBrokenTemplate(t *testing.T) {
	d := &Dashboard{}
	d.pages, d.texts = parsePages()
	for what, show := range map[string]func(http.ResponseWriter){
		"html": func(w http.ResponseWriter) { d.html(w, 200, "page", &page{View: "now", Model: 7}) },
		"text": func(w http.ResponseWriter) { d.text(w, &page{View: "now", Model: 7}) },
	} {
		w := httptest.NewRecorder()
		show(w)
		body := w.Body.String()
		if w.Code != 500 || !strings.HasPrefix(body, "tenure: this page cannot be shown: ") {
			t.Errorf("%s: %d\n%s", what, w.Code, body)
		}
	}
}
