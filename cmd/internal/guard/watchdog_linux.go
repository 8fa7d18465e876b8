// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// The caller's own watch over the deadlines, for a guardian that does not keep them.
// The guardian goes first: SIGTERM must reach a process once. SIGKILL does no harm twice, and
// comes from both at the kill instant.

// patience is how long a guardian may be late with SIGTERM, or with dying after SIGKILL was
// due, at most. It is cut to a quarter of the time that there is.
const patience = 200 * time.Millisecond

// nextAlarm is when the watchdog has to look. It needs the lock.
func (g *Guard) nextAlarm() Instant {
	kill := g.orders.kill()
	if g.terminated {
		return kill
	}
	due := g.orders.Term
	if g.stopAt != 0 {
		due = min(due, g.stopAt)
	}
	due = max(due, g.warnedAt)
	return min(due.Add(g.termPatience(due)), kill)
}

// termPatience is how long the guardian may be late with a SIGTERM due at an instant.
func (g *Guard) termPatience(due Instant) time.Duration {
	return max(0, min(patience, g.orders.kill().Sub(due)/4))
}

// watch keeps the deadlines until the guardian is gone. Nothing it does waits for the network, a
// mutex held for long, or the guardian.
func (g *Guard) watch() {
	for g.alarm.wait() {
		now := Now()
		g.mu.Lock()
		if g.over {
			g.mu.Unlock()
			return
		}
		switch {
		case now >= g.orders.kill():
			g.over = true
			if !g.done {
				g.setReason()
				g.killed = true
			}
			limit := max(0, min(patience, g.orders.Expiry.Sub(g.orders.kill())/4))
			g.mu.Unlock()
			g.killAll(now.Add(limit))
			return
		case !g.orders.term(now) || g.terminated:
			g.warnedAt = 0
			g.alarm.set(g.nextAlarm())
		case g.warnedAt == 0:
			// This process may itself have been stopped, with the guardian's word unread in the
			// pipe. It gets the time to read it.
			g.warnedAt = now
			g.alarm.set(g.nextAlarm())
		default:
			g.terminated = true
			g.setReason()
			g.alarm.set(g.nextAlarm())
			looksEnd := g.orders.looksEnd()
			g.mu.Unlock()
			g.withGuardian(func(pid int) { _ = g.proc.terminateFamily(pid, looksEnd) })
			g.notice(Notice{Kind: Terminating})
			continue
		}
		g.mu.Unlock()
	}
}

// setReason notes why this process acts. What the guardian reports counts more. It needs the lock.
func (g *Guard) setReason() {
	if g.reason == Ended {
		g.reason = g.orders.reason()
	}
}

// killAll kills everything below the guardian until the guardian is gone, and from an
// instant on the guardian, too. Then the rest is this process's: see adopt.
func (g *Guard) killAll(guardianToo Instant) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-g.gone:
			return
		default:
		}
		g.withGuardian(func(pid int) {
			_ = g.proc.killFamily(pid)
			if Now() >= guardianToo {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		timer := time.NewTimer(pause)
		select {
		case <-g.gone:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// withGuardian calls f while the guardian's pid is sure to be the guardian's.
func (g *Guard) withGuardian(f func(pid int)) {
	g.pin.Lock()
	defer g.pin.Unlock()
	if !g.reaped {
		f(g.guardian)
	}
}
