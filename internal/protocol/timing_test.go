// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

func TestValidate(t *testing.T) {
	with := func(change func(*Timing)) Timing {
		timing := Timing{}.WithDefaults()
		change(&timing)
		return timing
	}
	for _, tt := range []struct {
		name   string
		timing Timing
		want   []string // texts of the error; none: valid
	}{
		{"defaults", Timing{}.WithDefaults(), nil},
		{"shortest", Timing{Lease: MinLease}.WithDefaults(), nil},
		{"longest", Timing{Lease: MaxLease}.WithDefaults(), nil},
		{"lease too short", Timing{Lease: MinLease / 2}.WithDefaults(), []string{"lease duration 5ms must be from 10ms to 8760h0m0s"}},
		{"lease too long", Timing{Lease: MaxLease + time.Second}.WithDefaults(), []string{"lease duration 8760h0m1s"}},
		{"lease of part of a millisecond", Timing{Lease: time.Second + 1}.WithDefaults(), []string{"whole number of milliseconds"}},
		{"heartbeat", with(func(t *Timing) { t.Heartbeat = -1 }), []string{"heartbeat period -1ns must be positive"}},
		{"refresh", with(func(t *Timing) { t.Refresh = -1 }), []string{"refresh period -1ns must be positive"}},
		{"frequent heartbeats", with(func(t *Timing) { t.Heartbeat = MinPeriod - 1 }), []string{"heartbeat period 999.999µs must be at least 1ms, because each period costs a request to the store"}},
		{"frequent looks", with(func(t *Timing) { t.Refresh = 3000 }), []string{"refresh period 3µs must be at least 1ms, because each period costs a request to the store"}},
		{"shortest periods", with(func(t *Timing) { t.Heartbeat, t.Refresh = MinPeriod, MinPeriod }), nil},
		{"grace", with(func(t *Timing) { t.Grace = -1 }), []string{"grace -1ns must be positive"}},
		{"request timeout", with(func(t *Timing) { t.RequestTimeout = -1 }), []string{"request timeout -1ns must be positive"}},
		{"stop timeout", with(func(t *Timing) { t.StopTimeout = -1 }), []string{"stop timeout -1ns must be positive"}},
		{"progress", with(func(t *Timing) { t.Progress = -1 }), []string{"progress timeout -1ns must be from 0 to 8760h0m0s"}},
		{"drift too small", with(func(t *Timing) { t.Drift = -0.1 }), []string{"clock drift bound -0.1 must be above 0 and at most 0.5"}},
		{"drift too large", with(func(t *Timing) { t.Drift = 0.51 }), []string{"clock drift bound 0.51"}},
		{"drift not a number", with(func(t *Timing) { t.Drift = math.NaN() }), []string{"clock drift bound NaN"}},
		{"two at once", with(func(t *Timing) { t.Grace, t.Refresh = -1, -1 }), []string{"grace -1ns", "refresh period -1ns"}},
		{"parts", with(func(t *Timing) { t.Heartbeat = 8 * time.Second }), []string{
			"lease duration 15s is shorter than its parts", "heartbeat period 8s", "2 x request timeout 1.5s", "grace 1.875s", "= 12.875s must be at most 12.523s",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.timing.Validate()
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("got error %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestWindow checks the inequality on which two processes rely: the window on a slow
// clock is over before a fast clock has counted the lease.
func TestWindow(t *testing.T) {
	for _, drift := range []float64{1e-6, 0.01, 0.09, 0.5} {
		timing := Timing{Drift: drift}.WithDefaults()
		acts := float64(timing.Window()) / (1 - drift)
		waits := float64(timing.Wait(driver.Record{Lease: timing.Lease, Beat: "b"})) / (1 + drift)
		if acts > waits+1 {
			t.Errorf("drift %v: a holder acts for %v, a contender waits for %v", drift, acts, waits)
		}
		// The clock of a process without Tenure may be slewed, whatever this process's is.
		foreign := float64(timing.Wait(driver.Record{Lease: timing.Lease})) / (1 + drift)
		if acts := float64(timing.Lease) / (1 - max(drift, 0.09)); acts > foreign+1 {
			t.Errorf("drift %v: a foreign holder acts for %v, a contender waits for %v", drift, acts, foreign)
		}
		if timing.Usable() != timing.Window()-timing.Grace {
			t.Errorf("usable %v of window %v", timing.Usable(), timing.Window())
		}
	}
}

func TestBackoff(t *testing.T) {
	for _, random := range []float64{0, 0.5, 1 - 1e-9} {
		env := Env{Random: func() float64 { return random }}
		before := time.Duration(0)
		for n := range 1000 {
			d := timing.backoff(env, n)
			if d < timing.Lease/2000 || d > timing.Lease/10 {
				t.Errorf("backoff %d is %v", n, d)
			}
			if d < before {
				t.Errorf("backoff %d is %v after %v", n, d, before)
			}
			before = d
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add(int64(15e9), int64(3e9), int64(1e9), int64(2e9), int64(1e9), 0.09)
	f.Fuzz(func(t *testing.T, lease, heartbeat, refresh, grace, request int64, drift float64) {
		timing := Timing{
			Lease: time.Duration(lease), Heartbeat: time.Duration(heartbeat), Refresh: time.Duration(refresh),
			Grace: time.Duration(grace), RequestTimeout: time.Duration(request), Drift: drift,
		}.WithDefaults()
		if timing.Validate() != nil {
			return
		}
		// A holder with a valid timing can lose one heartbeat and still renew in time.
		if usable := timing.Usable(); usable <= 0 || usable >= timing.Lease || timing.Heartbeat+2*timing.RequestTimeout > usable {
			t.Errorf("%+v is valid, but only %v of the lease is usable", timing, usable)
		}
	})
}

func TestHeartbeatTimeout(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct{ lease, request, want time.Duration }{
		{15 * time.Second, 0, time.Second},
		{time.Minute, 0, 4 * time.Second},
		{10 * time.Second, 0, 666 * ms},
		{7500 * ms, 0, 500 * ms},
		{6 * time.Second, 0, 500 * ms},
		{5 * time.Second, 0, 500 * ms},
		{4 * time.Second, 0, 400 * ms},
		{10 * ms, 0, ms},
		{15 * time.Second, 700 * ms, 700 * ms},
		{15 * time.Second, 2 * time.Second, 2 * time.Second},
	} {
		timing := Timing{Lease: tt.lease, RequestTimeout: tt.request}.WithDefaults()
		if got := timing.HeartbeatTimeout(); got != tt.want {
			t.Errorf("lease %v, request timeout %v: %v, want %v", tt.lease, tt.request, got, tt.want)
		}
	}
}
