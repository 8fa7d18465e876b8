// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what processes use together.
type usage struct {
	memory int64 // bytes resident that are no file's
	cpu    time.Duration
}

// usageOf sums up what processes use.
func usageOf(pids []int) (usage, error) {
	var all usage
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return all, err
		}
		_, rest, found := strings.Cut(string(status), "RssAnon:")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			return all, fmt.Errorf("process %d: no RssAnon", pid)
		}
		kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return all, fmt.Errorf("process %d: RssAnon: %w", pid, err)
		}
		all.memory += kilobytes << 10
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return all, err
		}
		// After the name, which may have spaces: utime and stime are the 12th and the 13th.
		fields = strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, at := range []int{11, 12} {
			ticks, err := strconv.ParseInt(fields[at], 10, 64)
			if err != nil {
				return all, fmt.Errorf("process %d: %w", pid, err)
			}
			all.cpu += time.Duration(ticks) * tick
		}
	}
	return all, nil
}

// tick is the unit of these times: what sysconf(_SC_CLK_TCK) is on Linux for all programs.
const tick = time.Second / 100
