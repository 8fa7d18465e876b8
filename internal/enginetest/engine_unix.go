// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package enginetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Stop has the process hang, and returns when it does: the kernel stops its threads one after
// the other, a little after the signal was sent. Where there is no /proc it does not wait.
func (e *Engine) Stop() {
	e.t.Helper()
	e.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(enginePatience); !e.stopped(); time.Sleep(time.Millisecond) { //nolint:forbidigo // a process of its own
		if time.Now().After(end) {
			e.t.Fatalf("%s does not stop", e.args[0])
		}
	}
}

// stopped says whether all threads of the process are stopped, as far as anybody can tell.
func (e *Engine) stopped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return true
	}
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", e.cmd.Process.Pid)) // the pattern is a good one
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in brackets and may hold others.
		if i := bytes.LastIndexByte(stat, ')'); i < 0 || !bytes.HasPrefix(stat[i+1:], []byte(" T")) {
			return false
		}
	}
	return true
}

// Continue ends a Stop.
func (e *Engine) Continue() { e.Signal(syscall.SIGCONT) }
