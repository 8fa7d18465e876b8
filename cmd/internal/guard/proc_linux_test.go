// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// The tests' own view of processes.
var testProc = sync.OnceValue(func() procFS {
	proc, err := openProc()
	if err != nil {
		panic(err)
	}
	return proc
})

func readProcesses() (*processTable, error) { return testProc().processes() }
func readProcess(pid int) (process, error)  { return testProc().process(pid) }
func isStopped(pid int) bool                { return testProc().isStopped(pid) }

// A pid that is the same in both namespaces is not taken for this process's own pid.
func TestForeignProcIsTold(t *testing.T) {
	status := func(numbers string) string {
		return "Name:\tx\nNStgid:\t" + numbers + "\nNSpid:\t" + numbers + "\nNSpgid:\t1\n"
	}
	for _, test := range []struct {
		name, link, status string
		own                bool
	}{
		{"own", "7", status("7"), true},
		{"old kernel", "7", "Name:\tx\n", true},
		{"of the outer one", "1234", status("1234\t7"), false},
		{"of the outer one, same number", "7", status("7\t7"), false},
		{"of one below or beside", "", "", false},
		{"old kernel, of the outer one", "1234", "Name:\tx\n", false},
	} {
		if err := checkNumbers(7, test.link, test.status); (err == nil) != test.own {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if err := Supported(); err != nil {
		t.Error(err)
	}
}

// A number that is a thread's by now is nobody's to signal: kill would reach the process that
// the thread belongs to.
func TestThreadIsNotSignalled(t *testing.T) {
	got := make(chan os.Signal, 2)
	signal.Notify(got, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(got)
	threads, err := testProc().names("self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range threads {
		tid, err := strconv.Atoi(name)
		if err != nil || tid == os.Getpid() {
			continue
		}
		p, err := readProcess(tid) // not in a list of /proc, but there
		if err != nil {
			continue // it has ended
		}
		if err := testProc().signal(p, syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
	}
	if len(threads) < 2 {
		t.Fatal("no threads")
	}
	// Signals come in the order of their numbers.
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if sig := <-got; sig != syscall.SIGUSR2 {
		t.Error("a thread's number was signalled")
	}
}

// Only children are killed, whatever else has got the number.
func TestKillChild(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exec 3<&0; cat <&3 & echo $!; wait")
	in, out := enginetest.Start(t, cmd)
	grandchild := 0
	if _, err := fmt.Fscan(out, &grandchild); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(testProc().children(), cmd.Process.Pid) {
		t.Errorf("%d is not among the children %v", cmd.Process.Pid, testProc().children())
	}
	killChild(grandchild)
	word := ""
	if _, err := fmt.Fprintln(in, "alive"); err != nil {
		t.Error(err)
	}
	if _, err := fmt.Fscan(out, &word); err != nil || word != "alive" {
		t.Errorf("the child of a child was killed: %q, %v", word, err)
	}
	killChild(cmd.Process.Pid)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child ended with %v", err)
	}
	_ = in.Close() // the end of the other one
}

// What a caller wrote before its guardian read the clock, the guardian sees before it judges by
// that clock: a guardian that was stopped in between must not end what was extended meanwhile.
func TestClockIsReadBeforeThePipe(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer closeAll(pipe[:])
	g := &guardian{in: pipe[0], given: true, orders: orders{Limits: Limits{Term: 10, Kill: 20, Expiry: 30}}}
	g.clock = func() Instant { // it is stopped until 50, and before that the newer limits came
		newer := frame{kind: frameOrders, orders: orders{Limits: Limits{Term: 100, Kill: 110, Expiry: 120}}}
		if _, err := unix.Write(pipe[1], newer.append(nil)); err != nil {
			t.Fatal(err)
		}
		return 50
	}
	if now := g.look(); g.orders.term(now) {
		t.Errorf("at %d everything would get SIGTERM by limits that had been extended: %+v", now, g.orders)
	}
}

// A later Stop makes the kill earlier, or changes nothing.
func TestLaterStopLeavesNoMoreTime(t *testing.T) {
	alarm, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer alarm.close()
	g := &Guard{alarm: alarm, poke: make(chan struct{}, 1)}
	far := Now().Add(time.Hour)
	limits := Limits{Term: far, Kill: far + 1000, Expiry: far + 2000}
	g.Extend(limits)
	for _, step := range []struct{ stop, kill Instant }{
		{far + 500, far + 500},
		{far + 900, far + 500},
		{far + 5000, far + 500},
		{far + 300, far + 300},
		{far + 301, far + 300},
	} {
		g.Stop(step.stop)
		if kill := g.orders.kill(); kill != step.kill {
			t.Errorf("after Stop(far+%d) it is killed at far+%d, want far+%d", step.stop-far, kill-far, step.kill-far)
		}
		limits.Kill += 10
		g.Extend(limits) // nor does a heartbeat
		if kill := g.orders.kill(); kill != step.kill {
			t.Errorf("after a heartbeat it is killed at far+%d, want far+%d", kill-far, step.kill-far)
		}
	}
}

// Leases count by a clock that no time service slews. By the boot clock, a guardian alone would end
// the command too late while that clock is slowed.
func TestNowIsNotSlewed(t *testing.T) {
	read := func(id int32) Instant {
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			t.Skip(err)
		}
		return Instant(ts.Nano())
	}
	begun := time.Now()
	want := read(unix.CLOCK_MONOTONIC_RAW) + read(unix.CLOCK_BOOTTIME) - read(unix.CLOCK_MONOTONIC)
	now := Now()
	boot := read(unix.CLOCK_BOOTTIME)
	if took := time.Since(begun); now.Sub(want) > 2*took || want.Sub(now) > 2*took {
		t.Errorf("now it is %d by Now, want %d; the boot clock shows %d", now, want, boot)
	}
}

// However the boot clock is slewed, its timer is not late, and few of them are early.
func TestTimersUnderSlewing(t *testing.T) {
	for _, rate := range []float64{1.0 / slowdown, 0.9, 1, 1.1, 2} { // of the boot clock
		const at = Instant(20 * time.Second)
		var now Instant
		early := 0
		for ; now < at; early++ {
			boot := Instant(float64(now) * rate)
			now = now.Add(time.Duration(float64(timerAt(boot, now, at).Sub(boot))/rate) + 1)
		}
		if late := now.Sub(at); late > slowdown*timerSlack || early > 100 {
			t.Errorf("rate %v: the last of %d timers is %v late", rate, early, late)
		}
	}
}
