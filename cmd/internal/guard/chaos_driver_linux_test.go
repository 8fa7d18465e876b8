// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// The tests run real processes: the test binary again, as a driver (a small tenure run that
// gets its limits by flags) and as the driver's guardian, and shell scripts that misbehave.
//
// Every process of a test carries the test's mark in its environment. That is how what is left
// of a family is found, however it has detached itself: by nothing that the package under
// test goes by.

const (
	driverEnv    = "GUARD_TEST_DRIVER"
	markEnv      = "GUARD_TEST_FAMILY"
	subreaperArg = "subreaper"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == lastArg {
		lastAct(os.Args[2:])
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == subreaperArg {
		os.Exit(subreap(os.Args[2:]))
	}
	if os.Getenv(driverEnv) != "" {
		os.Exit(driver(os.Args[1:]))
	}
	enginetest.DefaultSignals()
	os.Exit(m.Run())
}

// report is what a driver leaves in its report file.
type report struct {
	Exit    Exit
	Started string // the error of Start
	Status  int
	Spare   time.Duration // from the return of Wait to the last Expiry
}

// driver is a caller of the package: it extends the limits with every beat, passes signals on
// and ends with the command's status, or 73. Until the scripts have written the files that
// -ready names the limits are of minutes, and neither beats nor the time of -stop count: on a
// busy machine nobody knows how long a family takes to begin. The file "counting" says that
// they do now, and that the guardian has been sent such limits.
func driver(args []string) int {
	flags := flag.NewFlagSet("driver", flag.ExitOnError)
	term := flags.Duration("term", time.Minute, "from each beat to Term")
	kill := flags.Duration("kill", 2*time.Minute, "from each beat to Kill")
	expiry := flags.Duration("expiry", 3*time.Minute, "from each beat to Expiry")
	beat := flags.Duration("beat", 50*time.Millisecond, "between beats")
	beats := flags.Int("beats", 1<<30, "how many beats there are")
	ready := flags.String("ready", "", "files, with commas between: what they all are there for counts from then on")
	stop := flags.Duration("stop", 0, "ask the command to stop after that time")
	allow := flags.Duration("allow", 500*time.Millisecond, "how long the command may take to stop")
	contain := flags.Bool("contain", false, "")
	act := flags.String("last", "", "where the last act of the guardian is noted")
	nonsense := flags.String("nonsense", "", "a file: when it is there something goes to the guardian that it cannot read")
	hangup := flags.String("hangup", "", "a file: when it is there the pipe to the guardian is closed, once")
	linger := flags.Duration("linger", 0, "how long the notice of a stop takes")
	endThread := flags.Bool("end-thread", false, "end the thread that has started the guardian")
	file := flags.String("report", os.DevNull, "where to leave the report")
	_ = flags.Parse(args) // it ends the process itself
	_ = os.Unsetenv(driverEnv)

	isReady := func() bool {
		for name := range strings.SplitSeq(*ready, ",") {
			if b, err := os.ReadFile(name); err != nil || !bytes.HasSuffix(b, []byte("\n")) {
				return false
			}
		}
		return true
	}
	var last Limits
	counts := *ready == ""
	limits := func() Limits {
		now := Now()
		last = Limits{Term: now.Add(*term), Kill: now.Add(*kill), Expiry: now.Add(*expiry)}
		if !counts {
			last = Limits{Term: now.Add(time.Minute), Kill: now.Add(2 * time.Minute), Expiry: now.Add(3 * time.Minute)}
		}
		return last
	}
	signals := make(chan os.Signal, 8)
	for _, sig := range Signals() {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	finish := func(r report) int {
		b, _ := json.Marshal(r)
		if err := os.WriteFile(*file, b, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return r.Status
	}
	var lastArgs []string
	if *act != "" {
		lastArgs = []string{"last-act", lastArg, *act}
	}
	g, err := startOn(*endThread, Command{
		Args:    flags.Args(),
		Contain: *contain,
		Last:    lastArgs,
		Notify: func(n Notice) {
			fmt.Fprintf(os.Stderr, "notice: %v %v\n", n.Kind, n.Processes)
			if n.Kind == Suspended {
				time.Sleep(*linger)
			}
		},
	}, limits())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status := StartStatus(err)
		if status == 0 {
			status = 70
		}
		return finish(report{Started: err.Error(), Status: status})
	}
	note := func(name string) {
		if err := os.WriteFile(name, []byte(fmt.Sprintln(os.Getpid())), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	// A command can be seen before the guardian has said that it runs.
	note("started")
	ticker := time.NewTicker(*beat)
	var asked <-chan time.Time
	askLater := func() {
		if counts && *stop > 0 {
			asked = time.After(*stop)
		}
	}
	askLater()
	// The writer takes orders one after the other: when it has taken others since those that
	// count first, these are in the pipe.
	taken := 0
	for done := false; !done; {
		select {
		case <-ticker.C:
			if *nonsense != "" && there(*nonsense) {
				*nonsense = ""
				_, _ = g.toIt.Write(make([]byte, frameSize))
			}
			if *hangup != "" && there(*hangup) {
				*hangup = ""
				_ = g.toIt.Close()
			}
			if g.mu.Lock(); counts && !g.newOrders {
				if taken++; taken == 2 {
					note("counting")
				}
			}
			g.mu.Unlock()
			switch {
			case *beats == 0:
			case counts:
				*beats--
				g.Extend(limits())
			case isReady():
				counts = true
				*beats--
				g.Extend(limits())
				askLater()
			default:
				g.Extend(limits())
			}
		case sig := <-signals:
			fmt.Fprintf(os.Stderr, "signal: %v\n", sig)
			g.Signal(sig)
		case <-asked:
			g.Stop(Now().Add(*allow))
		case <-g.finished:
			done = true
		}
	}
	exit := g.Wait()
	spare := last.Expiry.Sub(Now())
	status := exit.Status()
	if exit.Reason != Ended {
		status = 73
	}
	return finish(report{Exit: exit, Status: status, Spare: spare})
}

// startOn is Start, on a thread that ends with it if endThread is set.
func startOn(endThread bool, cmd Command, first Limits) (g *Guard, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if endThread {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		}
		g, err = Start(cmd, first)
	}()
	<-done
	return g, err
}

// subreap runs a driver, and inherits its orphans in the session that they are in, as process
// 1 of a container does if it is a shell. It ends when none of them is left.
func subreap(args []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
	if _, err := syscall.ForkExec("/proc/self/exe", append([]string{"driver"}, args...), attr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); errors.Is(err, syscall.ECHILD) {
			return 0
		}
	}
}

func there(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// family is a driver under test, with its guardian, its command and all that it started.
type family struct {
	t      *testing.T
	dir    string // the scripts' working directory
	mark   string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	waited bool
}

// newFamily prepares a driver with some flags for a shell script. The test may change
// f.cmd before f.start.
func newFamily(t *testing.T, script string, flags ...string) *family {
	t.Helper()
	f := &family{t: t, dir: t.TempDir()}
	f.mark = fmt.Sprintf("%s=%s-%d", markEnv, t.Name(), time.Now().UnixNano())
	args := append([]string{"-report", f.file("report")}, flags...)
	f.cmd = exec.Command(os.Args[0], append(args, "--", "sh", "-c", script)...)
	f.cmd.Dir = f.dir
	f.cmd.Env = append(os.Environ(), driverEnv+"=1", f.mark,
		"GORACE=atexit_sleep_ms=0") // the race detector's second at exit would count against the guardian
	f.cmd.Stderr = &f.stderr
	f.cmd.WaitDelay = 30 * time.Second
	return f
}

func startFamily(t *testing.T, script string, flags ...string) *family {
	t.Helper()
	f := newFamily(t, script, flags...)
	f.start()
	return f
}

func (f *family) start() {
	f.t.Helper()
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		left := f.left()
		for _, p := range left {
			_ = testProc().signal(p, unix.SIGKILL)
		}
		f.wait()
		if len(left) > 0 {
			f.t.Errorf("left behind: %v", left)
		}
		if f.t.Failed() && f.stderr.Len() > 0 {
			f.t.Logf("driver's stderr:\n%s", &f.stderr)
		}
	})
}

func (f *family) file(name string) string { return filepath.Join(f.dir, name) }

// await waits until the scripts have written files, and returns the number in the last one.
func (f *family) await(names ...string) (pid int) {
	f.t.Helper()
	for _, name := range names {
		f.eventually("file "+name, func() bool {
			b, err := os.ReadFile(f.file(name))
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return err == nil && bytes.HasSuffix(b, []byte("\n"))
		})
	}
	return pid
}

// awaited bounds what a test waits for. It is far more than anything takes on a busy machine,
// and less than limits of minutes.
const awaited = 40 * time.Second

func (f *family) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(awaited); ; {
		began := time.Now()
		if ok() {
			return
		}
		if began.After(end) {
			f.t.Fatalf("not within %v: %s; alive: %v", awaited, what, f.left())
		}
		// Looking through all processes of the machine takes long where there are many of them.
		time.Sleep(max(5*time.Millisecond, 4*time.Since(began)))
	}
}

// wait returns the driver's exit status as a shell would show it.
func (f *family) wait() int {
	if !f.waited {
		f.waited = true
		_ = f.cmd.Wait()
	}
	ws := f.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// finish waits for the driver and returns its report. At that instant nothing may be left.
func (f *family) finish() report {
	f.t.Helper()
	f.wait()
	if left := f.left(); len(left) > 0 {
		f.t.Errorf("alive after the driver's end: %v", left)
	}
	var r report
	b, err := os.ReadFile(f.file("report"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		f.t.Fatalf("no report: %v; driver's stderr:\n%s", err, &f.stderr)
	}
	return r
}

// left returns all living processes with the test's mark: driver, guardian, family.
func (f *family) left() []process {
	folders, err := os.ReadDir("/proc")
	if err != nil {
		f.t.Fatal(err)
	}
	var left []process
	for _, folder := range folders {
		pid, err := strconv.Atoi(folder.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			f.t.Fatal(err)
		}
		if err != nil || !bytes.Contains(env, []byte(f.mark+"\x00")) {
			continue // gone, somebody else's, or none of the family
		}
		if p, err := readProcess(pid); err == nil {
			left = append(left, p)
		}
	}
	return left
}

// below returns what is left but the driver and the guardian.
func (f *family) below() []process {
	left := f.left()
	guardian := guardianOf(left)
	return slices.DeleteFunc(left, func(p process) bool {
		return p.pid == f.cmd.Process.Pid || p.pid == guardian
	})
}

func (f *family) dead() bool { return len(f.below()) == 0 }

// guardian returns the guardian's pid, 0 when it is gone.
func (f *family) guardian() int { return guardianOf(f.left()) }

func guardianOf(left []process) int {
	for _, p := range left {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if err == nil && bytes.Contains(args, []byte("\x00"+guardianArg+"\x00")) {
			return p.pid
		}
	}
	return 0
}

func (f *family) signal(pid int, sig syscall.Signal) {
	f.t.Helper()
	if pid <= 0 {
		f.t.Fatalf("no process to signal")
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		f.t.Fatal(err)
	}
}

// hydra is a family that does all it can to survive: it ignores SIGTERM, and has a background job,
// a grandchild in a session of its own and a grandchild that was forked twice.
const hydra = `
trap '' TERM HUP INT
sh -c 'echo $$ >background; while :; do sleep 100; done' &
setsid sh -c 'echo $$ >session; while :; do sleep 100; done' &
( ( setsid sh -c 'echo $$ >double; while :; do sleep 100; done' & ) & )
echo $$ >main
while :; do sleep 100; done
`

// hydraReady are the files that say that the hydra is complete.
const hydraReady = "background,session,double,main"

// write makes a file that the driver waits for.
func (f *family) write(name string) {
	f.t.Helper()
	if err := os.WriteFile(f.file(name), []byte("\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *family) awaitHydra() {
	f.t.Helper()
	f.await("started", "background", "session", "double", "main")
	if n := len(f.below()); n < 4 {
		f.t.Fatalf("the family has %d members only: %v", n, f.below())
	}
}
