// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Diagnoser is implemented by stores that can say what their engine is like: its settings, its
// members, the rights of the program. "tenure doctor" asks them, and so does the page of a lock
// service.
type Diagnoser interface {
	// Diagnose returns what it finds, in the order in which people read it. The store need not
	// have reached its engine before. An error that stops every call, such as an address that
	// does not answer, is left to the calls: there are no findings then. It leaves nothing in
	// the engine, sends each request once, and ends within 20 s, or with ctx.
	Diagnose(ctx context.Context, t Timing) []Finding
}

// Timing is how clients use the store that is diagnosed.
type Timing struct {
	Lease, Heartbeat, Grace time.Duration
	// Refresh is how often a process that waits for a lock reads its record.
	Refresh time.Duration
}

// Level says how bad a finding is.
type Level string

// The levels of findings.
const (
	LevelOK   Level = "ok"
	LevelWarn Level = "warn" // works, but may fail some day
	LevelBad  Level = "bad"  // does not work, or not safely
)

// Finding is one result. Its texts are parts of a sentence, without a capital and a full stop.
type Finding struct {
	Check   string `json:"check"` // what was examined, in one or two words
	Level   Level  `json:"level"`
	Finding string `json:"finding"`
	Advice  string `json:"advice,omitempty"` // what to do
}

// OK returns a finding that asks for nothing.
func OK(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: LevelOK, Finding: fmt.Sprintf(format, args...)}
}

// Warn returns a finding of what works, and may not one day. It should have [Finding.Advise].
func Warn(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: LevelWarn, Finding: fmt.Sprintf(format, args...)}
}

// Bad returns a finding of what does not work, or not safely. It should have [Finding.Advise].
func Bad(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: LevelBad, Finding: fmt.Sprintf(format, args...)}
}

// Advise returns the finding with what to do about it.
func (f Finding) Advise(format string, args ...any) Finding {
	f.Advice = fmt.Sprintf(format, args...)
	return f
}

// String returns the finding as a line.
func (f Finding) String() string {
	text := fmt.Sprintf("%-4s  %s: %s", f.Level, f.Check, f.Finding)
	if f.Advice != "" {
		text += "; " + f.Advice
	}
	return text
}

// Encrypted returns the finding about the connection to hosts: only a connection within this
// machine may be unencrypted. Hosts have no port. Advice says how to encrypt it.
func Encrypted(is bool, advice string, hosts ...string) Finding {
	if is {
		return OK("encryption", "the connection is encrypted")
	}
	for _, host := range hosts {
		if !Near(host) {
			return Warn("encryption", "the connection is not encrypted").Advise("anyone on the network path can read "+
				"and change it: %s", advice)
		}
	}
	return OK("encryption", "the connection is not encrypted, and does not leave this machine")
}

// Near reports whether a host, without its port, is this machine by its name or its address, or
// a socket's path.
func Near(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || host == "" || host[0] == '/' || host[0] == '@' || ip != nil && ip.IsLoopback()
}

// Members returns the finding about how many of the servers that vote may be lost.
func Members(voting int, what string) Finding {
	f := OK("members", "%s", Counted(voting, what))
	switch {
	case voting == 1:
		f.Level, f.Advice = LevelWarn, "if its machine is lost, so are the locks and their tokens: run three"
	case voting%2 == 0:
		f.Advice = "an even number tolerates no more failures than one server fewer"
	}
	return f
}

// Counted returns a number of things as people write it: "1 lock", "2 locks".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
