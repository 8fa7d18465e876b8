// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
)

const (
	// looks is how many reads measure a latency. They read a lock that no program takes.
	looks    = 5
	lookName = "tenure-dashboard-looks"
	// programKey is the key of the findings of Options.Doctor. Those take longer than a question to the store,
	// and no act changes them.
	programKey = "program"
)

// finding is one thing that was found, in sentences.
type finding struct {
	Check        string
	Level        driver.Level
	Text, Advice string
	err          error // of the store or the engine, after the text for visitors with all rights; others see an id
}

// doctorView is what a doctor has found.
type doctorView struct {
	Rows     []finding
	Summary  string
	Measures bool // the visitor may have writes measured
	Confirm  bool // with its token
}

// doctor shows the findings of Options.Doctor, of reads, and of the writes that were measured. It leaves the
// contents of records to tenure doctor and the list of locks.
func (d *Dashboard) doctor(ctx context.Context, who visitor, _ url.Values) (*page, *problem) {
	v := &doctorView{Measures: who.form && who.all(access.Admin), Confirm: who.shares}
	p := &page{View: "doctor", Title: "Doctor", Model: v}
	found, _ := ask(ctx, d.cache, mostPace, programKey, d.program)
	reads, r := ask(ctx, d.cache, farPace, "reads", d.reads)
	d.note(p, who, reading{r.at, cmp.Or(r.err, reads.err)})
	v.Rows = append(slices.Clone(found), reads)
	if f := d.writes.Load(); f != nil {
		v.Rows = append(v.Rows, *f)
	}
	counts := map[driver.Level]int{}
	for i, f := range v.Rows {
		counts[f.Level]++
		if f.err != nil {
			v.Rows[i].Text += d.storeError(who, f.err)
		}
	}
	switch {
	case counts[driver.LevelBad] > 0:
		v.Summary = counted(counts[driver.LevelBad], "finding") + " must be fixed now."
	case counts[driver.LevelWarn] > 0:
		v.Summary = counted(counts[driver.LevelWarn], "finding") + " should be checked."
	default:
		v.Summary = "No problems were found from here."
	}
	return p, nil
}

// program is what the doctor of the program has found.
func (d *Dashboard) program(ctx context.Context) (found []finding, _ error) {
	for _, f := range d.options.Doctor(ctx) {
		one := finding{f.Check, f.Level, sentence(f.Finding), sentence(f.Advice), nil}
		if f.Level == driver.LevelBad { // it may have the words of the engine, with its address
			one.Text, one.err = "The engine is not set up as it should be: ", errors.New(one.Text)
		}
		found = append(found, one)
	}
	return found, nil
}

// sentence makes a sentence of a phrase.
func sentence(s string) string {
	first, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	if s = string(unicode.ToUpper(first)) + s[n:]; !strings.ContainsAny(s[len(s)-1:], ".?!:") {
		s += "."
	}
	return s
}

// reads measures how long the store takes to answer.
func (d *Dashboard) reads(ctx context.Context) (finding, error) {
	var took []time.Duration
	for range looks {
		asked := time.Now()
		if _, err := d.client.Status(ctx, lookName); err != nil {
			return finding{"store", driver.LevelBad, "The store cannot be read: ", "Fix that first.", err}, nil
		}
		took = append(took, time.Since(asked))
	}
	return d.latency("Reads take", took), nil
}

// latency compares how long requests took with the timeout of requests.
func (d *Dashboard) latency(what string, took []time.Duration) finding {
	timeout := d.client.Options().RequestTimeout
	slices.Sort(took)
	middle, most := took[len(took)/2], took[len(took)-1]
	f := finding{Check: "store", Level: driver.LevelOK}
	f.Text = fmt.Sprintf("%s %s to %s, median %s; the request timeout is %v.",
		what, exact(took[0]), exact(most), exact(middle), timeout)
	switch {
	case middle > timeout:
		f.Level, f.Advice = driver.LevelBad, "Most heartbeats would fail: use a longer lease with this store."
	case most > timeout/4:
		f.Level, f.Advice = driver.LevelWarn, "Slow writes would lose leases: use a longer lease with this store."
	}
	return f
}

// measure opens and closes a session of its own, and notes how long that took: two writes, as heartbeats are.
func (d *Dashboard) measure(w http.ResponseWriter, r *http.Request) *problem {
	who, p := d.acting(w, r)
	if p != nil {
		return p
	}
	act := access.Act{Principal: who.Name(), Action: "measure", Outcome: "forbidden"}
	if !who.all(access.Admin) {
		d.audit(r.Context(), act)
		return notAllowed(who, "have writes measured")
	}
	f := d.measureWrites(r.Context())
	act.Outcome = flashOf(f.err).word
	if f.err != nil {
		act.Detail = f.err.Error()
	}
	d.audit(r.Context(), act)
	d.writes.Store(&f)
	d.cache.stale()
	return seeOther(w, "doctor?flash="+measured.word)
}

func (d *Dashboard) measureWrites(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	s, err := d.client.OpenSession(ctx, nil)
	opened := time.Now()
	if err == nil {
		err = s.Close(ctx)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return finding{"store", driver.LevelOK, "Writes cannot be measured here: the store does not support sessions.", "", nil}
	case err != nil:
		return finding{"store", driver.LevelBad, "The store cannot be written: ", "Fix that first.", err}
	}
	f := d.latency("Two writes took", []time.Duration{opened.Sub(begun), time.Since(opened)})
	f.Text += " Measured at " + clockText(time.Now()) + "."
	return f
}
