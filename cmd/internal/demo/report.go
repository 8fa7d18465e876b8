// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// kind says what a report tells.
type kind string

// What a replica tells of itself, in the order in which it happens.
const (
	campaigning kind = "campaigning" // it has begun to campaign
	waiting     kind = "waiting"     // Owner leads with Token; it waits
	leading     kind = "leading"     // its work begins under Token
	renewed     kind = "renewed"     // a heartbeat was confirmed; it was sent Took before
	trouble     kind = "trouble"     // jeopardy, or an error of the store
	lost        kind = "lost"        // its lease ended without its asking
	stopping    kind = "stopping"    // its work was told to stop
	stopped     kind = "stopped"     // its work has returned
	released    kind = "released"    // the lock is released
	ended       kind = "ended"       // it has closed everything and is about to exit
)

// What the demo tells of itself and of a replica.
const (
	began   kind = "began"        // in Store, and Folder if that is its own, on Lock with Lease
	started kind = "started"      // the process was started
	killed  kind = "killed"       // SIGKILL was sent
	asked   kind = "asked_to_end" // SIGTERM was sent
	// A request to step down was laid into the record; as the end of a tenure,
	// what it was ended by.
	steppedDown kind = "stepped_down"
	exited      kind = "exited" // the process was waited for; Error: its status, if not 0
	seen        kind = "tenure" // a tenure that was seen: a row of the table
	passed      kind = "passed" // everything went as it must
	failed      kind = "failed" // Error says what did not
)

// report is something that happened, as a line of JSON. Time is the wall
// clock: all processes of the demo are on one machine and share it.
type report struct {
	Kind     kind      `json:"kind"`
	Time     time.Time `json:"time"`
	Elapsed  seconds   `json:"elapsed_seconds,omitempty"` // filled in by the demo
	Replica  string    `json:"replica,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Token    uint64    `json:"token,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Took     seconds   `json:"took_seconds,omitempty"`
	Previous *previous `json:"previous,omitempty"`
	Folder   string    `json:"folder,omitempty"`
	Store    string    `json:"store,omitempty"`
	Lock     string    `json:"lock,omitempty"`
	Lease    seconds   `json:"lease_seconds,omitempty"`
	From     seconds   `json:"from_elapsed_seconds,omitempty"`
	To       seconds   `json:"to_elapsed_seconds,omitempty"`
	End      string    `json:"end,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// previous is the tenure before, as the new leader found it in the record.
type previous struct {
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
	End   string `json:"end"`
}

func (p previous) String() string {
	return fmt.Sprintf("that of %s with token %d, %s", p.Owner, p.Token, p.End)
}

// seconds is a duration that is a number of seconds in JSON.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Round(time.Microsecond).Seconds(), 'f', -1, 64), nil
}

func (s *seconds) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*s = seconds(f * float64(time.Second))
	return nil
}
