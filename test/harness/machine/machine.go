// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine describes where a measurement was made, for later readers.
// What it cannot find out is "unknown".
package machine

import (
	"fmt"
	"runtime"

	"github.com/prometheus/procfs"
)

// Machine is where a run was made.
type Machine struct {
	CPU        string `json:"cpu"`
	Go         string `json:"go"`
	LoadBefore string `json:"loadBefore"` // of one minute
	LoadAfter  string `json:"loadAfter"`
}

// Here describes this machine, as it is before a run.
func Here() Machine {
	name := "unknown"
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if all, err := fs.CPUInfo(); err == nil && len(all) > 0 {
			name = all[0].ModelName
		}
	}
	return Machine{
		CPU: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), name), Go: runtime.Version(), LoadBefore: Load(),
	}
}

// String describes the machine, and how busy it was at the start and the end.
func (m Machine) String() string {
	return fmt.Sprintf("%s, load %s and %s", m.CPU, m.LoadBefore, m.LoadAfter)
}

// Load is how many tasks wanted to run in the last minute.
func Load() string {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if load, err := fs.LoadAvg(); err == nil {
			return fmt.Sprintf("%.2f", load.Load1)
		}
	}
	return "unknown"
}
