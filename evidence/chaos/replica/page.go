// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package replica

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// Page is what the nemesis and one replica share: by how much the replica's
// clocks are to differ from the machine's. It is memory that both have mapped,
// so that a replica that was stopped reads the new values with its very first
// look at a clock.
type Page struct {
	memory []byte
	words  *words
}

type words struct {
	changes  atomic.Int64 // raised after the others were written
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

// OpenPage maps the file, and makes it if it is not there.
func OpenPage(path string) (*Page, error) {
	memory, err := proc.Map(path, int(unsafe.Sizeof(words{})))
	if err != nil {
		return nil, err
	}
	return &Page{memory, (*words)(unsafe.Pointer(&memory[0]))}, nil
}

// Close unmaps the page. Nobody may read it any more.
func (p *Page) Close() error { return unix.Munmap(p.memory) }

// Add moves the clocks. The replica must be stopped meanwhile, and only one may
// call it at a time.
func (p *Page) Add(s Shift) {
	p.words.monoBack.Add(int64(s.MonoBack))
	p.words.bootBack.Add(int64(s.BootBack))
	p.words.wallOn.Add(int64(s.WallOn))
	p.words.changes.Add(1)
}

// Load returns the shift, and how often it was changed.
func (p *Page) Load() (Shift, int64) {
	n := p.words.changes.Load()
	return Shift{
		MonoBack: time.Duration(p.words.monoBack.Load()),
		BootBack: time.Duration(p.words.bootBack.Load()),
		WallOn:   time.Duration(p.words.wallOn.Load()),
	}, n
}

// changes returns how often the shift was changed.
func (p *Page) changes() int64 { return p.words.changes.Load() }
