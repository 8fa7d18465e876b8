// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import "time"

// SetTimeouts has a client that does not send or read be cut off sooner, for tests on real
// connections.
func (s *Server) SetTimeouts(body, write time.Duration) { s.bodyTimeout, s.writeTimeout = body, write }

// SetLinger has the rest of a body that nobody reads arrive sooner.
func (s *Server) SetLinger(d time.Duration) { s.lingerTimeout = d }

// Feeds returns how many feeds there are.
func (s *Server) Feeds() int {
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	return len(s.feeds.all)
}

// Kept returns how many semaphores, and locks for readers and writers, the server keeps.
func (s *Server) Kept() (sems, rws int) {
	s.sems.mu.Lock()
	defer s.sems.mu.Unlock()
	s.rws.mu.Lock()
	defer s.rws.mu.Unlock()
	return len(s.sems.all), len(s.rws.all)
}

// MaxIdle is how many of each the server keeps that no call uses.
const MaxIdle = maxIdle

// Addresses returns how many addresses the server remembers.
func (s *Server) Addresses() int {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	return len(s.limits.addresses)
}

var kinds = []kind{
	badRequest, unauthenticated, forbidden, notFound, wrongMethod, held, stale, alreadyAsked, alive, notHeld, noSessions, unsupported, lost,
	tooLarge, wrongType, misdirected, limited, unknown, unavailable, noLeader, unanswered,
}

// Kinds returns the kinds of problems, with their statuses.
func Kinds() map[string]int32 {
	all := map[string]int32{}
	for _, k := range kinds {
		all[k.name] = k.status
	}
	return all
}

// Routes returns the paths of the service, with their methods.
func (s *Server) Routes() map[string]string {
	all := map[string]string{}
	for path, r := range s.routes {
		all[path] = r.method
	}
	return all
}
