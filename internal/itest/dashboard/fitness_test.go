// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	_ "embed"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure"
)

// all are the pages, each with something to see.
var all = []string{
	"./", "./?state=in+doubt", "./?prefix=nothing", "lock?name=scheduler", "lock?name=thumbnails", "lock?name=nightly",
	"sessions", "shards?group=orders", "doctor", "lock?name=none", "nowhere", "login",
}

//go:embed testdata/fitness.js
var fitness string

// look calls a function of fitness.js, which returns what it has found.
func (b *browser) look(call string) []string {
	b.t.Helper()
	return value[[]string](b, "(() => { "+fitness+"\nreturn "+call+" })()")
}

// Every page is accessible.
func TestFitness(t *testing.T) {
	w, b := visited(t)
	w.fill()
	b.signIn(rootToken)
	b.until(settled)
	for _, scheme := range []string{"light", "dark"} {
		b.dark(scheme == "dark")
		for _, path := range all {
			b.open(path)
			for _, fault := range b.look("faults().concat(contrasts())") {
				t.Errorf("%s, %s: %s", path, scheme, fault)
			}
		}
	}
	if got := value[string](b, "getComputedStyle(document.documentElement).backgroundColor"); got == "rgb(246, 247, 248)" {
		t.Errorf("the dark page has a background of %s", got)
	}
}

// A narrow page needs no scrolling to the side, whatever the names are.
func TestPhone(t *testing.T) {
	w, b := visited(t)
	w.fill()
	long := strings.Repeat("a-very-long-name/", 50) + strings.Repeat("x", 100)
	w.holder(long, tenure.Options{
		Owner: strings.Repeat("o", 900), Host: strings.Repeat("h", 300), Label: strings.Repeat("l", 300),
	})
	b.size(360, 740, 1)
	b.signIn(rootToken)
	for _, path := range append([]string{"lock?name=" + url.QueryEscape(long), "./?prefix=a-very"}, all...) {
		b.open(path)
		for _, fault := range b.look("narrow(360)") {
			t.Errorf("%s: %s", path, fault)
		}
	}
	// A name is a word, not a column of letters.
	b.open("./?prefix=scheduler")
	height := "document.querySelector('table.locks tbody th a').getBoundingClientRect().height"
	if high := value[float64](b, height); high > 30 {
		t.Errorf("a short name is %v pixels high", high)
	}
}

// The tab key reaches all controls, and shows its place.
func TestKeyboard(t *testing.T) {
	w, b := signedIn(t)
	w.holder("m", tenure.Options{Owner: "web-1"})
	b.open("lock?name=m")
	b.until("document.getElementById('act-revoke')")
	want := len(b.look("Array(reachable()).fill('')"))
	seen := map[string]bool{}
	for range want {
		b.do(chromedp.KeyEvent("\t"))
		found := b.look("focus()")
		for _, fault := range found[1:] {
			t.Errorf("%s: %s", found[0], fault)
		}
		if seen[found[0]] = true; len(seen) == 1 && !strings.Contains(found[0], `class="skip"`) {
			t.Errorf("the first is %s", found[0])
		}
	}
	if len(seen) != want {
		t.Errorf("%d of %d elements were reached", len(seen), want)
	}
	// The first one skips what is above.
	b.open("lock?name=m")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	b.until("document.activeElement.id == 'main'")
	// The form can be sent without a mouse.
	value[any](b, "document.getElementById('reason-step-down').focus()")
	b.do(chromedp.KeyEvent("tired\r"))
	b.until("document.querySelector('.alert')")
}
