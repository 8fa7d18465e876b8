// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
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
	found []driver.Finding
}

func newEngineDoctor(at storeurl.Location, options tenure.Options) *engineDoctor {
	return &engineDoctor{patient: doctor.Patient{Diagnose: at.Diagnose, Options: options}}
}

// look returns what was found within the last minute.
func (d *engineDoctor) look(ctx context.Context) []driver.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Since(d.at) >= examineEach {
		ctx, cancel := context.WithTimeout(ctx, examinePatience)
		defer cancel()
		found := append(doctor.Numbers(d.patient.Options), doctor.Look(ctx, d.patient)...)
		if ctx.Err() != nil && len(d.found) > 0 {
			return d.found // nobody waits for it any more
		}
		d.at, d.found = time.Now(), found
	}
	return d.found
}
