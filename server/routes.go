// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
)

// route is one path of the service.
type route struct {
	method, path string
	who          who
	serve        func(*call) error // writes the answer, or returns why there is none
	most         int64             // the longest body in bytes; 0: it takes none
}

// who may take a route, and what it counts as.
type who int

const (
	caller who = iota // a principal; it counts as a call
	holder            // a principal; the handler counts its heartbeats
	some              // a principal, or anybody if the handler finds that it is public
	anyone            // anybody, under any host name: it tells nothing of locks
)

// What can be public has these paths.
const (
	leaderPath  = "/v1/leader"
	metricsPath = "/metrics"
)

// makeRoutes returns the routes by their paths: those of openapi.json.
func (s *Server) makeRoutes() map[string]*route {
	routes := map[string]*route{}
	for _, r := range []route{
		{http.MethodPost, "/v1/acquire", caller, (*call).acquire, maxBody},
		{http.MethodPost, "/v1/heartbeat", holder, (*call).heartbeat, maxShortBody},
		{http.MethodPost, "/v1/heartbeats", holder, (*call).heartbeats, maxBatchBody},
		{http.MethodPost, "/v1/release", holder, (*call).release, maxBody},
		{http.MethodPost, "/v1/requests", caller, (*call).ask, maxShortBody},
		{http.MethodPost, "/v1/fence-check", caller, (*call).fenceCheck, maxShortBody},
		{http.MethodGet, "/v1/locks", caller, (*call).locks, 0},
		{http.MethodGet, "/v1/status", caller, (*call).status, 0},
		{http.MethodGet, "/v1/history", caller, (*call).history, 0},
		{http.MethodGet, "/v1/once", caller, (*call).once, 0},
		{http.MethodGet, "/v1/events", caller, (*call).events, 0},
		{http.MethodGet, leaderPath, some, (*call).leader, 0},
		{http.MethodGet, metricsPath, some, (*call).metrics, 0},
		{http.MethodGet, "/healthz", anyone, (*call).healthz, 0},
		{http.MethodGet, "/readyz", anyone, (*call).readyz, 0},
		{http.MethodGet, "/openapi.json", some, (*call).openapi, 0},
	} {
		routes[r.path] = &r
	}
	return routes
}

// takes says whether the route takes the method.
func (r *route) takes(method string) bool {
	return method == r.method || method == http.MethodHead && r.method == http.MethodGet
}
