// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine says where a measurement was made, for those who read it
// later. What cannot be told is "unknown".
package machine

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
)

// Machine is where a run was made.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	System     string `json:"system"`
	LoadBefore string `json:"loadBefore"` // of one minute
	LoadAfter  string `json:"loadAfter"`
}

// Here describes this machine, as it is before a run.
func Here() Machine {
	m := Machine{CPU: unknown, System: unknown, Cores: runtime.NumCPU(), LoadBefore: Load()}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 {
			m.CPU = all[0].ModelName
		}
	}
	m.CPU = fmt.Sprintf("%d cores, %s", m.Cores, m.CPU)
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		_, name, _ := strings.Cut(string(text), "PRETTY_NAME=\"")
		m.System, _, _ = strings.Cut(name, "\"")
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // unknown, then
	kernel, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	m.System = fmt.Sprintf("%s, Linux %s, %s", m.System, kernel, runtime.Version())
	return m
}

const unknown = "unknown"

// String says where, and how busy it was at the start and the end.
func (m Machine) String() string {
	return fmt.Sprintf("%s, load %s and %s", m.CPU, m.LoadBefore, m.LoadAfter)
}

// Load is how many wanted to run in the last minute.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	return strings.Fields(string(text))[0]
}
