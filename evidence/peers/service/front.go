// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"net/http"
	"sync"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proxy"
)

// Front is what stands between one client and the replicas: a gate that can cut the client
// off, and behind it a proxy that has weather, and takes each call to a replica that it
// draws.
type Front struct {
	*gate.HTTP
	Proxy *proxy.Proxy

	closed sync.Once
}

// NewFront returns one.
func NewFront(replicas []string, w proxy.Weather, seed uint64) (*Front, error) {
	p, err := proxy.New(replicas, w, seed)
	if err != nil {
		return nil, err
	}
	return &Front{HTTP: gate.NewHTTP(p, decides), Proxy: p}, nil
}

// decides says of a call whether it writes to a lock's record. What is for people does not.
func decides(r *http.Request) bool { return r.Method == http.MethodPost }

// Close ends it. It may be called again.
func (f *Front) Close() {
	f.closed.Do(func() {
		f.HTTP.Close()
		f.Proxy.Close()
	})
}

// IsCall says of calls to the service whether they are to one of these paths.
func IsCall(paths ...string) func(proxy.Call) bool {
	return func(c proxy.Call) bool {
		for _, path := range paths {
			if c.Path == path {
				return true
			}
		}
		return false
	}
}

// The paths of the calls by which a lock is held.
const (
	AcquirePath   = "/v1/acquire"
	HeartbeatPath = "/v1/heartbeat"
	ReleasePath   = "/v1/release"
)
