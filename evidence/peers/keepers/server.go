// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package keepers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
)

// keeper holds many locks with one client.
type keeper interface {
	// acquire takes a lock, and keeps it as the i-th one; with a negative number it
	// gives it back.
	acquire(ctx context.Context, i int, name string) error
	// held says whether the client still has the i-th lock.
	held(i int) bool
	// close gives all of them back.
	close(ctx context.Context) error
	// CloseIdleConnections closes what was needed to take the locks.
	CloseIdleConnections()
	// tell fills in what the client itself tells of the last hold.
	tell(f *Figures)
}

// Role carries out orders until the input ends.
func Role(in io.Reader, out io.Writer) error {
	s := &server{lost: map[int]bool{}}
	return proc.ServeInTurn(in, proc.NewLines(out), func(o *order) any {
		var f Figures
		start, before := time.Now(), cpuTime(syscall.RUSAGE_SELF)
		err := s.run(context.Background(), o, &f)
		f.Took = time.Since(start).Seconds()
		f.CPU += (cpuTime(syscall.RUSAGE_SELF) - before).Seconds()
		if err != nil {
			f.Err = err.Error()
		}
		return f
	})
}

type server struct {
	keeper keeper
	locks  int
	lost   map[int]bool
	folder string // of the profiles
}

// Acquirers is how many locks a process takes at once.
const Acquirers = 16

func (s *server) run(ctx context.Context, o *order, f *Figures) (err error) {
	switch {
	case o.Do == toOpen:
		switch o.Client {
		case Tenure:
			s.keeper, err = openSession(ctx, o)
		case Dynamolock:
			s.keeper, err = openDynamolock(o)
		default:
			err = fmt.Errorf("no client %q holds many locks", o.Client)
		}
		if err == nil {
			err = s.keeper.acquire(ctx, -1, "first")
		}
	case o.Do == toProfile:
		err = s.profile(o.To)
	case s.keeper == nil:
		err = errors.New("not open")
	case o.Do == toAcquire:
		names := Names(o.Locks)
		before := footprint()
		if err = s.acquire(ctx, names); err != nil {
			return err
		}
		s.keeper.CloseIdleConnections()
		after := footprint()
		f.Heap, f.RSS = after.heap-before.heap, after.rss-before.rss
		err = s.profileHeap()
		runtime.KeepAlive(names)
	case o.Do == toHold:
		err = s.hold(ctx, o.For, f)
	case o.Do == toClose:
		err = s.keeper.close(ctx)
		pprof.StopCPUProfile()
	default:
		err = fmt.Errorf("no order %q", o.Do)
	}
	return err
}

func (s *server) acquire(ctx context.Context, names []string) error {
	err := wait.AtOnce(ctx, len(names), Acquirers, func(ctx context.Context, i int) error { return s.keeper.acquire(ctx, i, names[i]) })
	s.locks = len(names)
	return err
}

// Each of these is how often a process that holds looks at itself.
const (
	goroutinesEach = 50 * time.Millisecond
	checksEach     = time.Second
)

// hold looks at the locks for a while. What the looking costs is not counted.
func (s *server) hold(ctx context.Context, d time.Duration, f *Figures) error {
	runtime.LockOSThread() // so that its time can be told from the client's
	defer runtime.UnlockOSThread()
	before := cpuTime(syscall.RUSAGE_THREAD)
	s.keeper.tell(&Figures{})
	end := time.Now().Add(d)
	var next time.Time
	for {
		if now := time.Now(); now.After(next) || now.After(end) {
			s.check()
			next = now.Add(checksEach)
		}
		f.Goroutines = max(f.Goroutines, runtime.NumGoroutine())
		if time.Now().After(end) {
			break
		}
		if err := wait.For(ctx, min(goroutinesEach, time.Until(end)+1)); err != nil {
			return err
		}
	}
	f.Lost, f.RSS = len(s.lost), rss()
	s.keeper.tell(f)
	f.CPU -= (cpuTime(syscall.RUSAGE_THREAD) - before).Seconds()
	return nil
}

func (s *server) check() {
	for i := range s.locks {
		if !s.keeper.held(i) {
			s.lost[i] = true
		}
	}
}

func (s *server) profile(folder string) error {
	s.folder = folder
	file, err := os.Create(filepath.Join(folder, fmt.Sprintf("cpu-%d.pprof", os.Getpid())))
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(file)
}

func (s *server) profileHeap() error {
	if s.folder == "" {
		return nil
	}
	file, err := os.Create(filepath.Join(s.folder, fmt.Sprintf("heap-%d.pprof", os.Getpid())))
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(file), file.Close())
}

// memory is what a process uses.
type memory struct{ heap, rss int64 }

// footprint is the memory in use, without garbage.
func footprint() memory {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{int64(min(m.HeapAlloc, math.MaxInt64)), rss()}
}

func rss() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// cpuTime is the time that this process, or this thread, has used.
func cpuTime(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
