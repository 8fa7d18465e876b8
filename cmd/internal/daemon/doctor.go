// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/dashboard"
)

const (
	// examineEach is how long what was found of the engine is shown.
	examineEach = time.Minute
	// examinePatience is how long an examination may take.
	examinePatience = 10 * time.Second
)

// engineDoctor makes the checks of the options and the engine for the page, which are those of tenure
// doctor that need no store of their own.
type engineDoctor struct {
	patient doctor.Patient

	mu    sync.Mutex // held while it examines
	at    time.Time
	found []dashboard.Finding
}

func newEngineDoctor(at storeurl.Location, options tenure.Options) *engineDoctor {
	return &engineDoctor{patient: doctor.Patient{Diagnose: at.Diagnose, Options: options}}
}

// look returns what was found within the last minute.
func (d *engineDoctor) look(ctx context.Context) []dashboard.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Since(d.at) >= examineEach {
		ctx, cancel := context.WithTimeout(ctx, examinePatience)
		defer cancel()
		found := append(doctor.Numbers(d.patient.Options), doctor.Look(ctx, d.patient)...)
		if ctx.Err() != nil && len(d.found) > 0 {
			return d.found // nobody waits for it any more
		}
		d.at, d.found = time.Now(), nil
		for _, f := range found {
			d.found = append(d.found, shown(f))
		}
	}
	return d.found
}

// shown returns a finding as the page has it: in sentences.
func shown(f driver.Finding) dashboard.Finding {
	levels := map[driver.Level]string{driver.LevelOK: dashboard.Good, driver.LevelWarn: dashboard.Warn, driver.LevelBad: dashboard.Bad}
	d := dashboard.Finding{Check: f.Check, Level: levels[f.Level], Text: sentence(f.Finding), Advice: sentence(f.Advice)}
	if f.Level == driver.LevelBad { // it may have the words of the engine, with its address
		d.Text, d.Err = "The engine is not as it should be: ", errors.New(d.Text)
	}
	return d
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
