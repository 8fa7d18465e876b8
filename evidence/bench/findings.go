// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"slices"
	"sync"
)

// findings collects what clients did, for rows in the order in which they were
// named first.
type findings struct {
	mu   sync.Mutex
	rows []row
}

func (f *findings) put(r row, client string, v value) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.rows, func(other row) bool { return other.What == r.What })
	if i < 0 {
		r.Values = map[string]value{}
		f.rows = append(f.rows, r)
		i = len(f.rows) - 1
	}
	f.rows[i].Values[client] = v
}

// inOrder returns the rows in the order of what.
func (f *findings) inOrder(what []string) []row {
	slices.SortStableFunc(f.rows, func(a, b row) int { return slices.Index(what, a.What) - slices.Index(what, b.What) })
	return f.rows
}
