// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenurelock/tenure/driver"
)

// clocks says what this machine's clocks are good for. drift is what clients
// allow them to be wrong by; raw says that they count by the raw clock.
func clocks(drift float64, raw bool) []driver.Finding {
	var f []driver.Finding
	var boot, mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		f = append(f, driver.Warn("clock", "this system has no boot clock: %v", err).
			Advise("suspends are noticed only by the wall clock"))
	} else if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err == nil {
		suspended := time.Duration(boot.Nano() - mono.Nano())
		text := "the boot clock counts suspends; none since the machine started"
		if suspended > 10*time.Millisecond {
			text = fmt.Sprintf("the boot clock counts suspends: %v since the machine started", shown(suspended))
		}
		f = append(f, driver.OK("clock", "%s", text))
	}
	if source, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource"); err == nil {
		f = append(f, judgeSource(strings.TrimSpace(string(source))))
	}
	if raw {
		f = append(f, driver.OK("clock", "leases count by the raw clock, which no time service slews, and allow "+
			"it %.2f %%", 100*drift))
	}
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	if err != nil {
		return append(f, driver.OK("clock", "the kernel does not report how the clock is adjusted: %v", err))
	}
	return append(f, judgeDiscipline(state == timeError || tx.Status&unix.STA_UNSYNC != 0, tx.Freq, tx.Tick, drift, raw))
}

// timeError is TIME_ERROR of adjtimex(2): the clock is not synchronised.
const timeError = 5

func judgeSource(source string) driver.Finding {
	f := driver.OK("clock", "the clock source is %s", source)
	switch source {
	case "jiffies", "refined-jiffies", "pit", "acpi_pm", "hpet":
		f.Level, f.Advice = driver.LevelWarn, "it is coarse, or slow to read: the kernel may have found a "+
			"better one unstable; see its log"
	}
	return f
}

// judgeDiscipline says how much faster or slower than its hardware the clock is
// made to run, by which leases count unless they count by the raw clock. freq is in parts of
// 2^-16 of a millionth, tick in microseconds for each hundredth of a second.
func judgeDiscipline(unsynced bool, freq, tick int64, drift float64, raw bool) driver.Finding {
	rate := math.Abs(float64(freq)/65536/1e6 + float64(tick-10_000)/10_000)
	f := driver.OK("clock", "its rate is corrected by %.4f %%; leases allow %.2f %%", 100*rate, 100*drift)
	if raw {
		f.Finding = fmt.Sprintf("the rate of the other clocks is corrected by %.4f %%, which leases do not notice", 100*rate)
		drift = math.Inf(1)
	}
	switch {
	case rate > drift:
		f.Level, f.Advice = driver.LevelBad, "no lease is safe with such a clock: bound the slew of the "+
			"time service, or raise MaxClockDrift"
	case rate > drift/2:
		f.Level, f.Advice = driver.LevelWarn, "bound the slew of the time service"
	case unsynced:
		f.Level, f.Finding = driver.LevelWarn, f.Finding+"; no time service sets the wall clock"
		f.Advice = "leases are not affected, but times in status and history may be wrong: run chrony or " +
			"systemd-timesyncd"
	}
	return f
}
