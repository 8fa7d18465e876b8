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
	m := Machine{Cores: runtime.NumCPU(), LoadBefore: Load()}
	m.CPU = fmt.Sprintf("%d cores, %s", m.Cores, find("/proc/cpuinfo", "model name", ":"))
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // unknown, then
	kernel, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	m.System = fmt.Sprintf("%s, Linux %s, %s", strings.Trim(find("/etc/os-release", "PRETTY_NAME", "="), `"`), kernel, runtime.Version())
	return m
}

// String says where, and how busy it was at the start and the end.
func (m Machine) String() string {
	return fmt.Sprintf("%s, load %s and %s", m.CPU, m.LoadBefore, m.LoadAfter)
}

// Load is how many wanted to run in the last minute.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// find returns the value of a line of a file.
func find(file, name, separator string) string {
	text, _ := os.ReadFile(file) // unknown, then
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(line, separator)
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
