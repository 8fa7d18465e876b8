// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// patience bounds how long a page may take to show something.
const patience = time.Minute

// browser is one tab of a headless browser.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	problems []string
}

// chromium returns the program. It skips the test if none is installed.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(enginetest.Required) != "" {
		t.Fatal("there is no chromium: scripts/setup installs it")
	}
	t.Skip("there is no chromium: make verify installs it, and so does scripts/setup")
	return ""
}

// newBrowser starts a browser of its own, of a width in pixels.
func newBrowser(t *testing.T, url string, width, height int) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.WindowSize(width, height),
		chromedp.Flag("no-sandbox", os.Geteuid() == 0), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(patience), chromedp.CombinedOutput(io.Discard),
	)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil { // this is the browser's context
		t.Fatal(err)
	}
	b := &browser{t: t, ctx: ctx, url: url}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	command(b, log.Enable, cdp.Empty{})
	command(b, runtime.Enable, cdp.Empty{})
	b.size(width, height, 1)
	return b
}

// note records faults of a page: errors of its script, and violations of its policy.
func (b *browser) note(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *log.EventEntryAdded:
		// Tests cover refused answers; the console shows each.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			text = string(e.Entry.Source) + ": " + e.Entry.Text
		}
	}
	if text != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, text)
	}
}

// clean fails the test if a page has done something wrong.
func (b *browser) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Error(p)
	}
}

// within is a context for one action.
func (b *browser) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, patience)
}

// do runs actions, within a time limit.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.text())
	}
}

// size sets the size of the page, as on a phone if it is narrow.
func (b *browser) size(width, height int, scale float64) {
	b.t.Helper()
	command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: int64(width), Height: int64(height), DeviceScaleFactor: scale, Mobile: width < 600,
	})
}

// dark sets whether the visitor prefers a dark page.
func (b *browser) dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// scripts sets whether pages may run scripts.
func (b *browser) scripts(on bool) {
	b.t.Helper()
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// command sends a command of the protocol.
func command[P, R any](b *browser, c cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	r, err := chromedp.Call(ctx, c, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// text is what the page shows.
func (b *browser) text() string {
	ctx, cancel := b.within()
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body ? document.body.innerText : ''"))
	if err != nil {
		return err.Error()
	}
	return text
}

// open shows an address.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url + "/" + path))
}

// signIn gives a token to the form.
func (b *browser) signIn(token string) {
	b.t.Helper()
	b.open("login")
	b.fill("#token", token)
	b.click("main button") // Submit of chromedp tells no script
	b.until("document.getElementById('live')")
}

// fill types text into a field.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// click clicks on an element.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// until waits for a condition, which is in JavaScript.
func (b *browser) until(condition string) {
	b.t.Helper()
	expression := "(() => { try { return !!(" + condition + ") } catch { return false } })()"
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		ctx, cancel := b.within()
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		cancel()
		if err == nil && ok {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			b.t.Fatalf("not within %v: %s (%v)\n%s", patience, condition, err, b.text())
		}
	}
}

// value evaluates JavaScript.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", expression, err, b.text())
	}
	return v
}
