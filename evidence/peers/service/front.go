// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"net/http"
	"slices"

	"github.com/tenurelock/tenure/evidence/bed/gate"
)

// NewFront returns what stands between one client and the replicas: a gate that can cut the
// client off, that has weather, and that takes each call to a replica that it draws.
func NewFront(replicas []string, w gate.Weather, seed uint64) (*gate.HTTP, error) {
	return gate.NewWeathered(replicas, w, seed, decides)
}

// decides says of a call whether it writes to a lock's record. What is for people does not.
func decides(r *http.Request) bool { return r.Method == http.MethodPost }

// IsCall says of calls to the service whether they are to one of these paths.
func IsCall(paths ...string) func(gate.Call) bool {
	return func(c gate.Call) bool { return slices.Contains(paths, c.Path) }
}

// The paths of the calls by which a lock is held.
const (
	AcquirePath   = "/v1/acquire"
	HeartbeatPath = "/v1/heartbeat"
	ReleasePath   = "/v1/release"
)
