// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// plain shows a demo as lines of text, in a pipe or a log.
type plain struct{ w io.Writer }

func (p plain) report(report) {}
func (p plain) draw(scene)    {}
func (p plain) close()        {}

func (p plain) say(at time.Duration, s string) {
	fmt.Fprintf(p.w, "%7s  %s\n", inSeconds(at), s)
}

func (p plain) tell(lines []string) {
	for _, line := range lines {
		fmt.Fprintln(p.w, line)
	}
}

// jsonLines shows a demo as JSON, one report a line.
type jsonLines struct{ enc *json.Encoder }

func (j jsonLines) report(r report)           { _ = j.enc.Encode(r) } // a reader that is gone is SIGPIPE's
func (j jsonLines) say(time.Duration, string) {}
func (j jsonLines) draw(scene)                {}
func (j jsonLines) close()                    {}
func (j jsonLines) tell([]string)             {}
