// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package adapters_test

import (
	"context"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	tenuregocron "github.com/tenurelock/tenure/adapters/gocron"
	"github.com/tenurelock/tenure/once"
)

// ahead is a clock that is wrong by as much.
type ahead struct {
	clockwork.Clock
	by time.Duration
}

func (c ahead) Now() time.Time { return c.Clock.Now().Add(c.by) }

// runGocron has a job of each second, which takes a quarter of one, by a clock that is ahead by
// the argument.
func runGocron(ctx context.Context, p process) {
	by, err := time.ParseDuration(p.arg)
	if err != nil {
		fail(err)
	}
	clock := ahead{clockwork.NewRealClock(), by}
	schedule := tenuregocron.Period(time.Second)
	locker, err := tenuregocron.NewLocker(p.client, schedule, &tenuregocron.LockerOptions{Now: clock.Now})
	if err != nil {
		fail(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithClock(clock), gocron.WithDistributedLocker(locker))
	if err != nil {
		fail(err)
	}
	task := locker.Task("job", func(_ context.Context, turn *once.Turn) error {
		p.tell("begin %d", turn.Slot())
		<-time.After(250 * time.Millisecond)
		if err := turn.Check(); err != nil {
			return err
		}
		p.tell("end %d", turn.Slot())
		return nil
	})
	_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(task), gocron.WithName("job"),
		gocron.WithStartAt(gocron.WithStartDateTime(schedule.Next(clock.Now()))))
	if err != nil {
		fail(err)
	}
	p.tell("starts")
	scheduler.Start()
	<-ctx.Done()
}

// TestGocron: three processes whose clocks are 1.5 s apart have a job of each second. The one
// that is ahead, and has most of them, is killed in the middle of a run; then the next one is
// stopped for longer than its lease, and goes on. No occurrence begins twice, and the last
// process runs them to the end.
func TestGocron(t *testing.T) {
	p := process{dir: t.TempDir()}
	// One after the other, because the clock that is ahead is to come last.
	p.start(t, "gocron", "behind", "-1.5s")
	right := p.start(t, "gocron", "right", "0s")
	fast := p.start(t, "gocron", "ahead", "1.5s")

	begins := func(lines [][]string, name string) (n int) {
		for _, l := range lines {
			if l[0] == name && l[1] == "begin" {
				n++
			}
		}
		return n
	}
	p.until(t, "the process that is ahead runs the job", func(lines [][]string) bool {
		last := len(lines) - 1
		return begins(lines, "ahead") >= 3 && lines[last][0] == "ahead" && lines[last][1] == "begin"
	})
	if err := fast.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	was := begins(p.lines(t), "right")
	p.until(t, "the next one runs it", func(lines [][]string) bool { return begins(lines, "right") >= was+2 })
	if err := right.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	was = begins(p.lines(t), "behind")
	p.until(t, "the last one runs it", func(lines [][]string) bool { return begins(lines, "behind") >= was+3 })
	if err := right.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	was = len(p.lines(t))
	p.until(t, "both go on", func(lines [][]string) bool { return len(lines) >= was+8 })

	var slots []int64
	for _, l := range p.lines(t) {
		if l[1] != "begin" {
			continue
		}
		slot, err := strconv.ParseInt(l[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(slots, slot) {
			t.Errorf("occurrence %d has begun twice: %v", slot, p.lines(t))
		}
		slots = append(slots, slot)
	}
}
