// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/shard"
)

// shots is the folder for the pictures of the docs; without it they are discarded:
//
//	go test ./internal/itest/dashboard -run Screenshots -shots "$PWD/docs/evidence/dashboard"
var shots = flag.String("shots", "", "make pictures of the pages in this folder")

// fill makes a world with something to see.
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
			State: driver.Held,
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

// plant writes a lock and its history, the oldest term first, as earlier holders would
// have. No process renews it: it is held, in doubt or expired by its periods.
func (w *world) plant(rec driver.Record, history ...driver.Record) {
	w.t.Helper()
	claim := func(next driver.Record) driver.Record {
		now, _, err := w.Store().Claim(w.t.Context(), next)
		return testutil.Must(now, err)(w.t)
	}
	for i, past := range history {
		past.Key, past.Version, past.State = protocol.HistoryKey(rec.Key, uint64(i)+1), "v", driver.Past
		past.Host, past.Lease = past.Owner+".example", 15*time.Second
		claim(past)
	}
	rec.Version, rec.Beat = "v1", "v1"
	first := rec
	first.State = driver.Held
	now := claim(first)
	for i := range history {
		rec.Token, rec.Version = uint64(i)+2, fmt.Sprint("v", i+2)
		now = testutil.Must(w.Store().Swap(w.t.Context(), now, rec))(w.t)
	}
}

// workers makes a group, and runs its workers until the test ends. The last one comes when the
// others have all partitions, and the first one takes its time to hand over.
func (w *world) workers(group string, partitions int, names ...string) {
	w.t.Helper()
	ctx := w.t.Context()
	var complete atomic.Bool // the last one is to come
	for i, name := range names {
		c := w.Client(name, func(o *tenure.Options) {
			o.Host, o.Label, o.LeaseDuration, o.StopTimeout = name+".example", "v7", 3*time.Second, time.Minute
			o.RefreshPeriod = 100 * time.Millisecond
		})
		g := testutil.Must(shard.New(c.Client, group, &shard.Options{Partitions: partitions, LeaveTimeout: -1}))(w.t)
		if i == len(names)-1 {
			w.Until("each partition has an owner", func() bool {
				st, err := shard.Read(ctx, c.Client, group)
				return err == nil && st.Unowned == 0 && st.Moving == 0
			})
			complete.Store(true)
		}
		ended := testutil.Go(func() error {
			return g.Run(ctx, func(of context.Context, p *shard.Partition) error {
				_ = p.Checkpoint(of, []byte("offset 4711"))
				<-of.Done()
				if i == 0 && complete.Load() {
					<-ctx.Done()
				}
				return nil
			})
		})
		w.t.Cleanup(func() { <-ended }) //nolint:errcheck // its context has ended
	}
}

// settled reports whether a filled world shows its crashed holders.
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
			w.client.Faults().Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
		}
		b.dark(shot.dark)
		b.size(shot.width, shot.height, 1)
		b.open(shot.path)
		b.until(shot.until)
		b.shoot(shot.name)
	}
}
