// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/peers"
)

// A suspend of the machine cannot be made for one process from outside: Go does
// not ask libc for the time. So this program is built once more, with a runtime
// whose monotonic clock stops for as long as asked. The process is
// stopped, the time that it was stopped for is written where its runtime reads
// it, and it is continued: it then finds its clocks as after a suspend. The wall
// clock and the boot clock have gone on, the monotonic clock has not.

// suspendEnv names the file that holds for how long the monotonic clock stood, as
// nanoseconds in eight bytes.
const suspendEnv = "TENURE_FAULTS_SUSPEND"

// suspendTag is the build tag of a program with such a runtime.
const suspendTag = "faults_suspend"

// edits are the changes to Go's runtime. Each has to be found.
var edits = []struct{ file, old, new string }{
	{"time_nofake.go", "\treturn nanotime1()\n}\n", "\treturn nanotime1() - suspendedFor()\n}\n" + `
// suspended is where it stands for how long the machine slept.
//
//go:linkname suspended
var suspended *int64

//go:nosplit
func suspendedFor() int64 {
	if p := suspended; p != nil {
		return *p
	}
	return 0
}

//go:linkname time_now time.now
func time_now() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = rawTimeNow()
	return sec, nsec, mono - suspendedFor()
}
`},
	{"timeasm.go", "//go:linkname time_now time.now\nfunc time_now() (", "func rawTimeNow() ("},
	{"time_linux_amd64.s", "TEXT time·now<ABIInternal>(SB)", "TEXT ·rawTimeNow<ABIInternal>(SB)"},
}

// buildSuspendable builds this program with such a runtime. The first time takes minutes: all of it
// is compiled, the standard library included.
func (r *harness) buildSuspendable(ctx context.Context) {
	r.say("building with a runtime that can sleep")
	root := strings.TrimSpace(must.Have(proc.Run(ctx, "", "go", "env", "GOROOT")))
	replaced := map[string]string{}
	for _, e := range edits {
		name := filepath.Join(root, "src", "runtime", e.file)
		text := string(must.Have(os.ReadFile(name)))
		if strings.Count(text, e.old) != 1 {
			must.Do(fmt.Errorf("%s is not as it was in Go 1.26: it does not have %q", name, e.old))
		}
		replaced[name] = r.file("*-"+e.file, strings.Replace(text, e.old, e.new, 1))
	}
	overlay := r.file("overlay", string(must.Have(json.Marshal(map[string]any{"Replace": replaced}))))
	r.suspendable = filepath.Join(r.dir, "suspendable")
	must.Have(proc.Run(ctx, "", "go", "build",
		"-buildvcs=false", "-overlay", overlay, "-tags", suspendTag, "-o", r.suspendable, thisModule))
}

// preload stops the Java virtual machine's monotonic clock in the same way:
// that one asks libc.
const preload = `#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *slept;

__attribute__((constructor)) static void begin(void) {
	int file = open(getenv("` + suspendEnv + `"), O_RDONLY);
	void *at = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		abort();
	slept = at;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int status = syscall(SYS_clock_gettime, id, ts);
	if (status == 0 && id == CLOCK_MONOTONIC && slept) {
		int64_t ns = ts->tv_sec * 1000000000LL + ts->tv_nsec - *slept;
		ts->tv_sec = ns / 1000000000LL;
		ts->tv_nsec = ns % 1000000000LL;
	}
	return status;
}
`

func (r *harness) buildPreload(ctx context.Context) {
	source := r.file("*.c", preload)
	must.Have(proc.Run(ctx, "", "cc", "-O2", "-shared", "-fPIC", "-o", filepath.Join(r.dir, preloaded), source))
}

// preloaded is the name of that library.
const preloaded = "slept.so"

// prepareSleep builds what columns need so that they can be suspended.
func (r *harness) prepareSleep(ctx context.Context, chosen []column) {
	if slices.ContainsFunc(chosen, column.onLibc) {
		r.buildPreload(ctx)
	}
	if slices.ContainsFunc(chosen, func(c column) bool { return !c.onLibc() }) {
		r.buildSuspendable(ctx)
	}
}

// sleeper returns a program like this, but suspendable, and the memory where it
// finds how long it was suspended.
func (s *fixture) sleeper(program *peers.Program) (*peers.Program, []byte) {
	file := filepath.Join(s.dir, "slept-"+rand.Text())
	slept := must.Have(proc.Map(file, 8))
	sleeps := *program
	sleeps.Command.Env = append(slices.Clone(program.Command.Env), suspendEnv+"="+file)
	if s.onLibc() {
		sleeps.Command.Env = append(sleeps.Command.Env, "LD_PRELOAD="+filepath.Join(s.dir, preloaded))
	} else {
		sleeps.Command.Args = []string{s.suspendable}
	}
	return &sleeps, slept
}

// sleep holds the monotonic clock of a stopped process for d more.
func (m *member) sleep(d time.Duration) {
	binary.NativeEndian.PutUint64(m.slept, binary.NativeEndian.Uint64(m.slept)+uint64(d))
}

const thisModule = "github.com/tenurelock/tenure/test/faults"
