// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package clock_test

import (
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// slewFor names the variable with the duration of each slewing.
const slewFor = "TENURE_TEST_SLEW"

// Modes and status bits of adjtimex(2), which package syscall does not name.
const (
	adjOffset, adjFrequency, adjStatus, adjConstant = 0x1, 0x2, 0x10, 0x20
	adjMicro, adjNano, adjTick                      = 0x1000, 0x2000, 0x4000

	adjAll  = adjOffset | adjFrequency | adjStatus | adjConstant | adjNano | adjTick
	locked  = 0x1 | 0x40 | 0x80 // STA_PLL, STA_UNSYNC and STA_FREQHOLD
	hasNano = 0x2000            // STA_NANO
)

// TestRealSlewing has the kernel slew its clocks by the worst that it allows. Its raw clock goes on,
// and the clocks of this package see neither a step nor a suspend. A holder that is cut off stops
// within its lease, and its successor waits for all of it.
//
// All programs of the machine see the slewed clocks. So it runs only where TENURE_TEST_SLEW asks
// for it. A process that is killed meanwhile leaves them so: adjtimex --tick 10000 --frequency 0.
func TestRealSlewing(t *testing.T) {
	each, err := time.ParseDuration(os.Getenv(slewFor))
	if err != nil {
		t.Skip("it slews the clocks of the whole machine: " + slewFor + "=10s runs it, as root, for so long at each rate")
	}
	var was syscall.Timex
	if _, err := syscall.Adjtimex(&was); err != nil {
		t.Skipf("adjtimex: %v", err)
	}
	if _, err := syscall.Adjtimex(&syscall.Timex{Modes: adjTick, Tick: was.Tick}); err != nil {
		t.Skipf("adjtimex: %v: it needs CAP_SYS_TIME in the first user namespace", err)
	}
	t.Cleanup(func() {
		adjust(t, syscall.Timex{Modes: adjAll, Tick: was.Tick, Freq: was.Freq, Status: locked, Constant: was.Constant})
		again := syscall.Timex{Modes: adjStatus, Status: was.Status}
		if was.Status&hasNano == 0 {
			again.Modes |= adjMicro
		}
		adjust(t, again)
	})
	for _, tt := range []struct {
		name        string
		set         syscall.Timex
		least, most float64 // how much of the time that passes the slewed clocks may show
	}{
		{name: "not at all", set: syscall.Timex{Tick: 10000}, least: 0.99999, most: 1.00001},
		{name: "tick -10 %", set: syscall.Timex{Tick: 9000}, least: 0.8999, most: 0.9001},
		{name: "tick +10 %", set: syscall.Timex{Tick: 11000}, least: 1.0999, most: 1.1001},
		{name: "frequency -500 ppm", set: syscall.Timex{Tick: 10000, Freq: -500 << 16}, least: 0.99949, most: 0.99951},
		{name: "frequency +500 ppm", set: syscall.Timex{Tick: 10000, Freq: 500 << 16}, least: 1.00049, most: 1.00051},
		// A quarter of the rest of the phase in each second.
		{
			name: "all, and phase -0.5 s", set: syscall.Timex{Tick: 9000, Freq: -500 << 16, Offset: -5e8},
			least: 0.77, most: 0.88,
		},
		{
			name: "all, and phase +0.5 s", set: syscall.Timex{Tick: 11000, Freq: 500 << 16, Offset: 5e8},
			least: 1.12, most: 1.23,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			elapsed := clock.New(clock.Options{})
			raw, ok := elapsed.Raw()
			if !ok {
				t.Skip("this machine has no raw clock")
			}
			tt.set.Modes, tt.set.Status = adjAll, locked
			adjust(t, tt.set)
			from := read(t, raw)
			cutOff(t, raw)
			if rest := each - (raw.Contender() - from.contender); rest > 0 {
				<-time.After(rest)
			}
			to := read(t, raw)
			least, most := to.first-from.last, to.last-from.first // have passed
			for what, passed := range map[string]time.Duration{
				"holder": to.holder - from.holder, "contender": to.contender - from.contender,
			} {
				if passed < least || passed > most {
					t.Errorf("%s: %v have passed; want %v to %v", what, passed, least, most)
				}
			}
			shown := to.slewed - from.slewed
			low, high := float64(shown)/float64(most), float64(shown)/float64(least)
			t.Logf("%v have passed, shown as %v: %.5f of them", least, shown, low)
			if high < tt.least || low > tt.most || low < 1.0/clock.MaxSlowdown {
				t.Errorf("want %v to %v of them, and never less than 1/%d", tt.least, tt.most, clock.MaxSlowdown)
			}
		})
	}
}

func adjust(t *testing.T, to syscall.Timex) {
	t.Helper()
	if _, err := syscall.Adjtimex(&to); err != nil {
		t.Errorf("adjtimex: %v", err)
	}
}

// reading is what clocks show between two readings of the kernel's raw clock.
type reading struct{ first, holder, contender, slewed, last time.Duration }

func read(t *testing.T, c *clock.Raw) (r reading) {
	t.Helper()
	r.first = kernelRaw(t)
	r.holder, r.contender, r.slewed = c.Holder(), c.Contender(), c.Elapsed().Contender()
	r.last = kernelRaw(t)
	return r
}

func kernelRaw(t *testing.T) time.Duration {
	t.Helper()
	const clockMonotonicRaw = 4
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonicRaw, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		t.Fatalf("clock_gettime: %v", errno)
	}
	return time.Duration(ts.Nano())
}

// cutOff has a holder's heartbeats hang, and another client wait for its lock.
func cutOff(t *testing.T, raw clock.Clock) {
	t.Helper()
	const lease = 3 * time.Second
	store := faultstore.New(memstore.New(), nil)
	defer store.Close()
	open := func() *tenure.Client {
		return testutil.Must(tenure.New(store.Driver(), &tenure.Options{LeaseDuration: lease}))(t)
	}
	holder, waiter := open(), open()
	defer holder.Close(t.Context())
	defer waiter.Close(t.Context())
	o := holder.Options()
	usable := time.Duration(float64(lease)*(1-o.MaxClockDrift)/(1+o.MaxClockDrift)) - o.Grace
	defer store.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpHeartbeat}, Fault: faultstore.BlackHole()})()

	before := raw.Contender()
	held := testutil.Must(holder.Acquire(t.Context(), "x", nil))(t)
	after := raw.Contender()
	var taken time.Duration
	next := testutil.Go(func() error {
		lease, err := waiter.Acquire(t.Context(), "x", nil)
		taken = raw.Contender()
		if err == nil {
			err = lease.Release(t.Context())
		}
		return err
	})
	asked := raw.Contender()
	for ; held.Check() == nil; asked = raw.Contender() {
		if asked > after+usable {
			t.Errorf("Check passes %v after the grant; want %v at most", asked-after, usable)
			break
		}
		<-time.After(time.Millisecond)
	}
	if now := raw.Contender(); now < before+usable {
		t.Errorf("Check fails %v after the request; want %v at least", now-before, usable)
	}
	<-held.Context().Done()
	cancelled := raw.Contender()
	testutil.Want(t, <-next, nil)
	if taken < before+lease {
		t.Errorf("taken over %v after the request; want %v at least", taken-before, lease)
	}
	t.Logf("Check failed after %v (the end of the lease's use: %v), the context ended after %v, the lock was taken after %v",
		asked-before, usable, cancelled-before, taken-before)
}
