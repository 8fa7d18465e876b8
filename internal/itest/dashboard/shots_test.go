// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
)

// shots is where the pictures of the docs are put; without it they are thrown away:
//
//	go test ./internal/itest/dashboard -run Screenshots -shots "$PWD/docs/evidence/dashboard"
var shots = flag.String("shots", "", "make pictures of the pages in this folder")

// fill makes a world in which there is something to see.
func (w *world) fill() {
	const hour, day = time.Hour, 24 * time.Hour
	begun := time.Now()
	past := func(owner, label string, ago, lasted time.Duration, end driver.EndReason, by, why string) driver.Record {
		rec := driver.Record{Owner: owner, Label: label, Since: begun.Add(-ago), End: end}
		if end != driver.EndExpired {
			rec.Until = rec.Since.Add(lasted)
		}
		if why != "" {
			rec.Asked = &driver.Request{ID: "q", Kind: driver.StepDown, By: by, Reason: why, At: rec.Until}
		}
		return rec
	}
	held := func(name, owner, host, label string, ago, lease, heartbeat time.Duration) driver.Record {
		return driver.Record{
			Key: name, Owner: owner, Host: host, Label: label, Since: begun.Add(-ago), Lease: lease, Heartbeat: heartbeat,
		}
	}
	w.plant(held("scheduler", "web-3", "web-3.example", "v7", day+3*hour, 24*hour, hour),
		past("web-1", "v6", 6*day+4*hour, 2*day+3*hour, driver.EndSteppedDown, "deploy", "v7 comes"),
		past("web-2", "v7", 4*day+hour-time.Minute, 9*hour, driver.EndFailed, "web-2", "panic: no such queue"),
		past("web-3", "v7", 3*day+15*hour, 0, driver.EndExpired, "", ""),
		past("web-1", "v7", 2*day+12*hour, 11*hour, driver.EndSteppedDown, "alice", "maintenance of web-1"),
		past("web-2", "v7", 2*day+hour-time.Minute, 20*hour, driver.EndReleased, "", ""))
	w.plant(held("billing/invoices", "billing-7", "app-2.example", "2026.4", 5*time.Minute, hour, 10*time.Minute))
	w.plant(held("mail/outbox", "mail-1", "app-1.example", "", 5*time.Minute, hour, 10*time.Minute))
	w.plant(held("migrations", "deploy-4711", "ci-3.example", "", 5*time.Minute, hour, 10*time.Minute))
	w.plant(held("search/reindex", "search-2", "app-4.example", "", 20*time.Minute, 10*time.Minute, time.Second))
	w.plant(held("thumbnails", "img-9", "app-5.example", "", 20*time.Minute, time.Second, 0))
	nightly := past("cron-1", "", 8*hour, 12*time.Minute, driver.EndReleased, "", "")
	nightly.Key, nightly.Lease, nightly.State = "nightly", time.Minute, driver.Released
	w.plant(nightly, past("cron-2", "", 9*hour, 14*time.Minute, driver.EndReleased, "", ""))
	w.workers("orders", 64, "worker-a", "worker-b", "worker-c", "worker-d")
}

// settled says that those who died in a filled world show it.
const settled = "document.querySelector('tr.s-in-doubt') && document.querySelector('tr.s-expired')"

// shoot makes a picture of the page.
func (b *browser) shoot(name string) {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(*shots, name+".png")
	if err := os.WriteFile(file, shot, 0o644); err != nil { //nolint:gosec // it is for everybody
		b.t.Fatal(err)
	}
}

// TestScreenshots makes the pictures that the docs show.
func TestScreenshots(t *testing.T) {
	if *shots == "" {
		*shots = t.TempDir()
	}
	w, b := visited(t)
	w.fill()
	b.open("login")
	b.shoot("login")
	b.signIn(rootToken)
	const moving = "document.querySelectorAll('.grid tbody tr').length == 4 && document.querySelector('.strip .r-comes')"
	for _, shot := range []struct {
		name, path, until string
		dark              bool
		width, height     int
	}{
		{"now", "./", settled, false, 1180, 760},
		{"lock", "lock?name=scheduler", "true", false, 1180, 760},
		{"shards", "shards?group=orders&from=50", moving, false, 1180, 760},
		{"sessions", "sessions", "true", false, 1180, 760},
		{"doctor", "doctor", "true", false, 1180, 760},
		{"now-dark", "./?prefix=s", "true", true, 1180, 760},
		{"lock-dark", "lock?name=scheduler", "true", true, 1180, 760},
		{"phone", "./?prefix=s", "true", false, 360, 740},
		{"phone-lock", "lock?name=scheduler", "true", false, 360, 740},
		{"away", "./", "document.querySelector('.alert.bad')", false, 1180, 500},
	} {
		if shot.name == "away" {
			w.away.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		}
		b.dark(shot.dark)
		b.size(shot.width, shot.height, 1)
		b.open(shot.path)
		b.until(shot.until)
		b.shoot(shot.name)
	}
}
