// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// shots is where the pictures of the docs are put; without it they are thrown away:
//
//	go test ./internal/itest/dashboard -run Screenshots -shots "$PWD/docs/evidence/dashboard"
var shots = flag.String("shots", "", "make pictures of the pages in this folder")

// maxShot is how large a picture may be, in bytes.
const maxShot = 150_000

// fill makes a world in which there is something to see.
func (w *world) fill() {
	const hour, day = time.Hour, 24 * time.Hour
	w.held("scheduler",
		past{"web-1", "v6", 6*day + 4*hour, 2*day + 3*hour, steppedDown("deploy", "v7 comes"), false},
		past{"web-2", "v7", 4*day + hour - time.Minute, 9 * hour, failed("panic: no such queue"), false},
		past{"web-3", "v7", 3*day + 15*hour, day + 2*hour, nil, true},
		past{"web-1", "v7", 2*day + 12*hour, 11 * hour, steppedDown("alice", "maintenance of web-1"), false},
		past{"web-2", "v7", 2*day + hour - time.Minute, 20 * hour, nil, false},
	)
	w.now.set(-(day + 3*hour))
	w.holder("scheduler", tenure.Options{
		Owner: "web-3", Host: "web-3.example", Label: "v7", LeaseDuration: 15 * time.Second,
	})
	w.now.set(-5 * time.Minute)
	w.holder("billing/invoices", tenure.Options{
		Owner: "billing-7", Host: "app-2.example", Label: "2026.4", LeaseDuration: 30 * time.Second,
	})
	w.holder("mail/outbox", tenure.Options{Owner: "mail-1", Host: "app-1.example", LeaseDuration: 10 * time.Second})
	w.holder("migrations", tenure.Options{Owner: "deploy-4711", Host: "ci-3.example", LeaseDuration: time.Minute})
	w.now.set(-20 * time.Minute)
	w.silent("search/reindex", tenure.Options{
		Owner: "search-2", Host: "app-4.example", LeaseDuration: 10 * time.Minute, HeartbeatPeriod: time.Second,
		RequestTimeout: time.Second,
	})
	w.silent("thumbnails", tenure.Options{Owner: "img-9", Host: "app-5.example", LeaseDuration: time.Second})
	w.now.set(0)
	w.held("nightly",
		past{owner: "cron-2", ago: 9 * hour, lasted: 14 * time.Minute},
		past{owner: "cron-1", ago: 8 * hour, lasted: 12 * time.Minute},
	)
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
	small, err := fewColours(shot)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(small) > maxShot {
		b.t.Errorf("%s has %d bytes, more than %d", name, len(small), maxShot)
	}
	if err := os.WriteFile(filepath.Join(*shots, name), small, 0o644); err != nil { //nolint:gosec // it is for everybody
		b.t.Fatal(err)
	}
}

// fewColours packs a picture: a page has few colours, and text has shades of them.
func fewColours(from []byte) ([]byte, error) {
	pic, err := png.Decode(bytes.NewReader(from))
	if err != nil {
		return nil, err
	}
	counts := map[color.RGBA]int{}
	bounds := pic.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(pic.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var palette color.Palette
	for _, c := range all[:min(len(all), 256)] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	packed := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(palette.Index(c)) //nolint:gosec // there are 256
				nearest[c] = i
			}
			packed.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, packed)
	return out.Bytes(), err
}

// TestScreenshots makes the pictures that the docs show.
func TestScreenshots(t *testing.T) {
	if *shots == "" {
		*shots = t.TempDir()
	}
	b := newBrowser(t, "", 1180, 760)
	w := newWorld(t)
	b.url = w.url
	w.fill()
	b.open("login")
	b.shoot("login.png")
	b.signIn(rootToken)
	b.open("./")
	b.until(settled)
	b.shoot("now.png")
	b.open("lock?name=scheduler")
	b.shoot("lock.png")
	b.open("shards?group=orders&from=50")
	b.until("document.querySelectorAll('.grid tbody tr').length == 4 && document.querySelector('.strip .r-comes')")
	b.shoot("shards.png")
	b.open("sessions")
	b.shoot("sessions.png")
	b.open("doctor")
	b.shoot("doctor.png")

	b.dark(true)
	b.open("./?prefix=s")
	b.shoot("now-dark.png")
	b.open("lock?name=scheduler")
	b.shoot("lock-dark.png")
	b.dark(false)
	b.size(360, 740, 2)
	b.open("./?prefix=s")
	b.shoot("phone.png")
	b.size(360, 740, 1)
	b.open("lock?name=scheduler")
	b.shoot("phone-lock.png")
	b.size(1180, 500, 1)
	w.away.Inject(faultstore.Rule{Fault: faultstore.LoseRequest()})
	b.open("./")
	b.until("document.querySelector('.alert.bad')")
	b.shoot("away.png")
}
