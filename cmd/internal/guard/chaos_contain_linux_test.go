// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// shows writes down what the namespace looks like from inside: whether /proc knows this
// very process by its number, how many processes it shows, and what this one may do.
const shows = `
own=$(sh -c 'echo $$; read -r stat </proc/self/stat; echo ${stat%% *}' | uniq | wc -l)
all=$(ls -d /proc/[0-9]* | wc -l)
echo $own $all $(sed -n 's/^Cap\(Inh\|Prm\|Eff\|Amb\):\t//p' /proc/self/status) >shows
`

// eachUser runs a test as root, where it can, and as an ordinary user.
func eachUser(t *testing.T, script string, test func(t *testing.T, f *family), flags ...string) {
	t.Run("as it is", func(t *testing.T) {
		t.Parallel()
		test(t, newFamily(t, script, flags...))
	})
	t.Run("unprivileged", func(t *testing.T) {
		t.Parallel()
		if os.Getuid() != 0 {
			t.Skip("needs root to become another user; as that user the other one covers it")
		}
		f := newFamily(t, script, flags...)
		f.publish(65534)
		test(t, f)
	})
}

// Inside, /proc is the namespace's own; and to mount it has left no capability to the command.
func TestContainHasItsOwnProc(t *testing.T) {
	t.Parallel()
	eachUser(t, shows, func(t *testing.T, f *family) {
		f.start()
		if r := f.finish(); r.Status != 0 {
			t.Fatalf("status %d, %v: %s", r.Status, r.Exit, &f.stderr)
		}
		b, err := os.ReadFile(f.file("shows"))
		fields := strings.Fields(string(b))
		if err != nil || len(fields) != 6 {
			t.Fatalf("%q, %v", b, err)
		}
		if fields[0] != "1" {
			t.Error("/proc calls a process inside by another number")
		}
		if len(fields[1]) > 1 {
			t.Errorf("%s processes are seen inside", fields[1])
		}
		if f.cmd.SysProcAttr != nil && strings.Trim(strings.Join(fields[2:], ""), "0") != "" {
			t.Errorf("capabilities of the command: %q", fields[2:])
		}
	}, "-contain")
}

// The new /proc stays inside also where mounts are shared, as systemd has them.
func TestContainMountsNothingOutside(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "exit 3", "-contain")
	f.cmd.Args = append([]string{
		"unshare", "-m", "--propagation", "shared", "sh", "-c",
		`grep -c ' /proc ' /proc/self/mountinfo >before; "$@"; ` +
			`grep -c ' /proc ' /proc/self/mountinfo >after || echo gone >after`, "sh",
	}, f.cmd.Args...)
	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip(err)
	}
	f.cmd.Path = path
	f.start()
	if f.wait(); strings.HasPrefix(f.stderr.String(), "unshare:") {
		t.Skipf("no mount namespaces here: %s", &f.stderr)
	}
	if r := f.finish(); r.Status != 3 {
		t.Errorf("status %d, %v: %s", r.Status, r.Exit, &f.stderr)
	}
	if before, after := f.await("before"), f.await("after"); before == 0 || after != before {
		t.Errorf("%d mounts on /proc, %d before", after, before)
	}
}

// A driver in the namespace of another one does all that it does elsewhere, contained or not.
func TestNestedGuardians(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"", "-contain"} {
		script := driverEnv + `=1 "$DRIVER" -report inner ` + flags + ` -- sh -c "$HYDRA"; echo $? >status`
		for _, victim := range []string{"caller", "guardian"} {
			t.Run(flags+victim, func(t *testing.T) {
				t.Parallel()
				eachUser(t, script, func(t *testing.T, f *family) {
					path := f.cmd.Path
					if path == "" {
						path = f.cmd.Args[0]
					}
					f.cmd.Env = append(f.cmd.Env, "DRIVER="+path, "HYDRA="+hydra)
					f.start()
					f.await("background", "session", "double", "main")
					caller, guardian := 0, 0
					f.eventually("inner guardian", func() bool {
						for _, p := range f.left() {
							line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
							if strings.Contains(string(line), guardianArg) && !strings.Contains(string(line), "$DRIVER") {
								guardian, caller = p.pid, p.ppid
							}
						}
						return guardian != 0
					})
					if victim == "caller" {
						f.signal(caller, syscall.SIGKILL)
					} else {
						f.signal(guardian, syscall.SIGKILL)
					}
					r := f.finish() // finds whatever is left
					if r.Status != 0 || r.Exit.Reason != Ended {
						t.Errorf("the outer one: status %d, %v: %s", r.Status, r.Exit, &f.stderr)
					}
					want := map[string]int{"caller": 137, "guardian": 73}[victim]
					if status := f.await("status"); status != want {
						t.Errorf("the inner one: status %d, want %d: %s", status, want, &f.stderr)
					}
				}, "-contain")
			})
		}
	}
}

// What may not be traced, such as a program that its user cannot read, is not in the list
// of a /proc with hidepid. Killed it is all the same, once it is a child of the guardian.
func TestHiddenProcess(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a /proc with hidepid")
	}
	for _, victim := range []string{"caller", "guardian"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			f := newFamily(t, `"$DIR/hidden" 1000 & echo $! >hidden-pid; setsid "$DIR/hidden" 1000 & exec sleep 1000`)
			f.publish(65534)
			hidden := filepath.Dir(f.dir) + "/hidden"
			sleep, err := exec.LookPath("sleep")
			if err != nil {
				t.Skip(err)
			}
			if out, err := exec.Command("install", "-m", "111", sleep, hidden).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			path, err := exec.LookPath("unshare")
			if err != nil {
				t.Skip(err)
			}
			f.cmd.Env = append(f.cmd.Env, "DIR="+filepath.Dir(f.dir))
			f.cmd.Args = append([]string{
				"unshare", "-m", "sh", "-c",
				`mount -t proc -o hidepid=2 proc /proc || exit 99; exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`,
				"sh", f.cmd.Path,
			}, f.cmd.Args[1:]...)
			f.cmd.Path, f.cmd.SysProcAttr = path, nil
			f.start()
			f.await("started", "hidden-pid")
			f.eventually("two hidden processes", func() bool {
				n := 0
				for _, p := range f.left() {
					if p.name == "hidden" {
						n++
					}
				}
				return n == 2
			})
			if victim == "guardian" {
				f.signal(f.guardian(), syscall.SIGKILL)
			} else {
				f.signal(f.cmd.Process.Pid, syscall.SIGKILL)
			}
			f.eventually("end of the family", f.dead)
			f.wait()
		})
	}
}

// A chain of processes. Each process starts the next one and ends: a list of all
// processes is out of date when it has been read, so no search finds the chain. It ends by itself
// once the test has.
const runaway = `
trap '' TERM HUP INT
kill -0 %d 2>/dev/null || exit
echo $$ >>ran
setsid sh "$0" &
exit
`

func TestRunaway(t *testing.T) {
	enginetest.MakeVerify(t)
	t.Parallel()
	for _, victim := range []string{"nobody", "caller", "guardian"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			f := newFamily(t, `sh runaway & sh runaway & sh runaway`, with(short, "-beats", "40", "-ready", "go")...)
			if err := os.WriteFile(f.file("runaway"), fmt.Appendf(nil, runaway, os.Getpid()), 0o600); err != nil {
				t.Fatal(err)
			}
			f.start()
			f.await("started", "ran")
			switch victim {
			case "caller":
				f.signal(f.cmd.Process.Pid, syscall.SIGKILL)
				f.wait()
				f.eventually("end of the family", func() bool { return len(f.left()) == 0 })
			case "guardian":
				f.signal(f.guardian(), syscall.SIGKILL)
				f.finish()
			default:
				f.write("go")
				f.finish()
			}
		})
	}
}
