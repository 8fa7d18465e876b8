// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/test/harness/proc"
)

// NewWatch returns a clock that all processes of the machine share, in nanoseconds since its
// start: CLOCK_BOOTTIME of the first time namespace. The kernel shifts this clock for a process in
// its own time namespace, by an offset that it reports; the watch subtracts that.
//
// It is not CLOCK_REALTIME, which no namespace shifts, because an operator may set
// that one while a run is under way. And it is read past the clock that the
// replica's locks go by, so that no fault of a clock moves it.
func NewWatch() (now func() int64, err error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil && !os.IsNotExist(err) { // else a kernel without time namespaces
		return nil, err
	}
	var offset int64
	for line := range strings.Lines(string(text)) {
		var name string
		var seconds, nanoseconds int64
		if _, err := fmt.Sscan(line, &name, &seconds, &nanoseconds); err != nil {
			return nil, fmt.Errorf("/proc/self/timens_offsets: %q: %w", line, err)
		}
		if name == "boottime" {
			offset = seconds*1e9 + nanoseconds
		}
	}
	return func() int64 { return proc.Clock(unix.CLOCK_BOOTTIME) - offset }, nil
}

// Slept returns by how much the boot clock of this process is ahead of its
// monotonic clock: the suspends of the machine, where no time namespace is.
func Slept() int64 { return proc.Clock(unix.CLOCK_BOOTTIME) - proc.Clock(unix.CLOCK_MONOTONIC) }

// Page is shared by the nemesis and one replica: it says by how much the
// replica's clocks differ from the machine's. It is memory that both have
// mapped, so that a stopped replica reads the new values with its first reading
// of a clock.
type Page struct {
	changed  atomic.Int64 // how often; raised after the others were written
	monoBack atomic.Int64
	bootBack atomic.Int64
	wallOn   atomic.Int64
}

// Shift is how the clocks of a replica differ from the machine's, in
// nanoseconds.
type Shift struct {
	MonoBack time.Duration `json:"monoBack"` // the monotonic clock is behind
	BootBack time.Duration `json:"bootBack"` // the boot clock is behind
	WallOn   time.Duration `json:"wallOn"`   // the wall clock is ahead
}

// OpenPage maps the file until the process ends, and creates it if necessary.
func OpenPage(path string) (*Page, error) {
	memory, err := proc.Map(path, int(unsafe.Sizeof(Page{})))
	if err != nil {
		return nil, err
	}
	return (*Page)(unsafe.Pointer(&memory[0])), nil
}

// Add moves the clocks. The replica must be stopped meanwhile. Add must not be
// called concurrently.
func (p *Page) Add(s Shift) {
	p.monoBack.Add(int64(s.MonoBack))
	p.bootBack.Add(int64(s.BootBack))
	p.wallOn.Add(int64(s.WallOn))
	p.changed.Add(1)
}

// Load returns the shift, and how often it was changed.
func (p *Page) Load() (Shift, int64) {
	n := p.changed.Load()
	return Shift{
		MonoBack: time.Duration(p.monoBack.Load()),
		BootBack: time.Duration(p.bootBack.Load()),
		WallOn:   time.Duration(p.wallOn.Load()),
	}, n
}

// shifted is the source of clocks that a nemesis has moved, and that have their
// own rate. No program can move the clocks of one Go process from outside,
// because it does not ask libc for the time: so this replica hands them to its
// locks, by the hook that package clock has for tests. No other program can
// import either.
type shifted struct {
	machine clock.Source
	page    *Page
	rate    float64 // by what part of it the rate differs
	began   clock.Reading
}

var _ clock.Source = (*shifted)(nil)

func newShifted(page *Page, rate float64) *shifted {
	machine := clock.System()
	return &shifted{machine, page, rate, machine.Read()}
}

// Now reads wall clock and monotonic clock.
func (s *shifted) Now() clock.Instant { return s.Read().Instant }

// Read reads all clocks.
func (s *shifted) Read() clock.Reading {
	_, seen, _ := s.both()
	return seen
}

// both reads all clocks, and returns how they are set and how they are seen, and
// under which change of the page.
func (s *shifted) both() (real, seen clock.Reading, change int64) {
	for {
		before := s.page.changed.Load()
		real := s.machine.Read()
		by, after := s.page.Load()
		if before != after {
			continue
		}
		seen := real
		seen.Mono = s.ownRate(s.began.Mono, real.Mono-by.MonoBack)
		seen.Wall = s.ownRate(s.began.Wall, real.Wall+by.WallOn)
		seen.Boot = s.ownRate(s.began.Boot, real.Boot-by.BootBack)
		return real, seen, after
	}
}

// ownRate returns an instant as shown by a clock of the rate that was right at the
// beginning. All clocks of a machine are slewed together.
func (s *shifted) ownRate(began, now time.Duration) time.Duration {
	return now + time.Duration(s.rate*float64(now-began))
}
