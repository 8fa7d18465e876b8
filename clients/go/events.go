// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errCut says that a stream ended before its answer.
var errCut = errors.New("the stream ended before an answer")

// readEvents reads an answer to an acquire that comes as a stream of events: it calls met with each
// holder that is waited for, and returns the last event as a reply. What is cut off before the end of
// its event does not count.
func readEvents(from io.Reader, met func(HeldError)) (reply, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxAnswer)
	var kind, retry string
	var data []string
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "event":
				kind = value
			case "retry":
				retry = value
			case "data":
				data = append(data, value)
			}
			continue
		}
		body := []byte(strings.Join(data, "\n"))
		switch kind {
		case "granted":
			return reply{status: 200, contentType: jsonType, body: body}, nil
		case "waiting":
			var w wireHeld
			if err := object(body, &w); err != nil {
				return reply{}, fmt.Errorf("event waiting: %w", err)
			}
			met(w.err())
		case "problem":
			var w wireProblem
			if err := object(body, &w); err != nil {
				return reply{}, fmt.Errorf("event problem: %w", err)
			}
			r := reply{status: w.Status, contentType: problemType, body: body}
			if ms, err := strconv.ParseUint(retry, 10, 32); err == nil {
				r.retryAfter = strconv.FormatUint((ms+999)/1000, 10) // in whole seconds, as the header
			}
			return r, nil
		}
		kind, retry, data = "", "", nil
	}
	if err := lines.Err(); err != nil {
		return reply{}, err
	}
	return reply{}, errCut
}
