// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/evidence/chaos/trial"
)

// record is a line of the log of a round: one of its fields is there.
type record struct {
	Event   *event        `json:"event,omitempty"`
	Process string        `json:"process,omitempty"`
	Line    *replica.Line `json:"line,omitempty"`
	Effect  *trial.Effect `json:"effect,omitempty"`
}

// save writes down all that was seen in a round, for anyone who looks into a
// violation: a seed does not bring the same round again, because the machine
// has its part in it.
func (r *round) save(path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	for _, e := range r.events {
		err = errors.Join(err, lines.Encode(record{Event: &e}))
	}
	for _, s := range r.seats {
		for _, p := range s.lives {
			for _, l := range p.lines {
				err = errors.Join(err, lines.Encode(record{Process: p.name, Line: &l}))
			}
		}
	}
	for _, e := range r.effects {
		err = errors.Join(err, lines.Encode(record{Effect: &e}))
	}
	return errors.Join(err, w.Flush())
}
