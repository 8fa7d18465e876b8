// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import "slices"

// put puts what a client did in a row, which is the last one if it is new. No two
// steps have a row of one name.
func (r *rig) put(like row, what, client string, v value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.row(like, what).Values[client] = v
}

// inOrder makes rows before anything is put in them: clients that are looked at at
// once do not come in the order of the table.
func (r *rig) inOrder(like row, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range names {
		r.row(like, what)
	}
}

// row returns the row of a name. The caller holds mu.
func (r *rig) row(like row, what string) *row {
	rows := &r.report.Rows
	i := slices.IndexFunc(*rows, func(other row) bool { return other.What == what })
	if i < 0 {
		i = len(*rows)
		like.What, like.Values = what, map[string]value{}
		*rows = append(*rows, like)
	}
	return &(*rows)[i]
}
