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
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/serve"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

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
	client      serve.Client
	session     *session        // the same, if the locks are under one
	connections *http.Transport // many at once to take the locks, next to none then
	refresh     *int64
	locks       []serve.Lock
	lost        map[int]bool
	folder      string // of the profiles
}

// Acquirers is how many locks a process takes at once.
const Acquirers = 16

func (s *server) run(ctx context.Context, o *order, f *Figures) (err error) {
	switch {
	case o.Do == toOpen:
		return s.open(ctx, o)
	case o.Do == toProfile:
		return s.profile(o.To)
	case s.client == nil:
		return errors.New("not open")
	case o.Do == toAcquire:
		return s.acquire(ctx, Names(o.Locks), f)
	case o.Do == toHold:
		return s.hold(ctx, o.For, f)
	case o.Do == toClose:
		defer pprof.StopCPUProfile()
		return s.close()
	}
	return fmt.Errorf("no order %q", o.Do)
}

func (s *server) open(ctx context.Context, o *order) error {
	db, connections := dynamo.ConnectWide(o.Endpoint)
	r := o.Timing.Open(o.Endpoint, o.Table)
	s.connections, s.refresh = connections, r.RefreshMs
	var err error
	switch o.Client {
	case peers.Tenure:
		if s.session, err = openSession(ctx, db, o); err == nil {
			s.client = s.session
		}
	case peers.Dynamolock:
		s.client, err = serve.OpenDynamolock(db, &r)
	default:
		err = fmt.Errorf("no client %q holds many locks", o.Client)
	}
	if err != nil {
		return err
	}
	first, err := s.take(ctx, "first")
	if err != nil {
		return err
	}
	return first.Release(&wire.Request{})
}

func (s *server) take(ctx context.Context, name string) (serve.Lock, error) {
	return s.client.Acquire(ctx, &wire.Request{Name: name, RefreshMs: s.refresh})
}

func (s *server) acquire(ctx context.Context, names []string, f *Figures) error {
	before := footprint()
	s.locks = make([]serve.Lock, len(names))
	err := wait.AtOnce(ctx, len(names), Acquirers, func(ctx context.Context, i int) (err error) {
		s.locks[i], err = s.take(ctx, names[i])
		return err
	})
	if err != nil {
		return err
	}
	s.connections.CloseIdleConnections()
	after := footprint()
	f.Heap, f.RSS = after.heap-before.heap, after.rss-before.rss
	runtime.KeepAlive(names)
	return s.profileHeap()
}

// close does what users do: each one who holds a lock under a session returns from
// the work when it is told to, and releases it.
func (s *server) close() error {
	for _, lock := range s.locks {
		if l, ok := lock.(serve.TenureLock); ok {
			context.AfterFunc(l.Context(), func() { _ = l.Release(nil) }) // a lease that was lost is counted elsewhere
		}
	}
	return s.client.Close()
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
	s.tell(&Figures{})
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
	s.tell(f)
	f.CPU -= (cpuTime(syscall.RUSAGE_THREAD) - before).Seconds()
	return nil
}

func (s *server) tell(f *Figures) {
	if s.session != nil {
		s.session.tell(f)
	}
}

func (s *server) check() {
	for i, lock := range s.locks {
		if !lock.Check() {
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
