// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import "time"

// Minute returns the slot of an occurrence that is scheduled at t: the Unix
// minutes, rounded down. Hand in the instant of the schedule, never the time at
// which the program happens to run: two hosts on either side of a minute must get
// the same slot.
func Minute(t time.Time) int64 {
	s := t.Unix()
	m := s / 60
	if s%60 < 0 {
		m--
	}
	return m
}

// MinuteTime returns the time of a slot that [Minute] made, in UTC.
func MinuteTime(slot int64) time.Time { return time.Unix(slot*60, 0).UTC() }
