// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// SessionRequest is a call to open a session.
type SessionRequest struct {
	Clock string `json:"clock,omitempty"`
	Data  []byte `json:"data,omitempty"`
	Host  string `json:"host,omitempty"`
	Label string `json:"label,omitempty"`
	Owner string `json:"owner"`
}

// Session is a session that was opened: it counts from its first confirmed heartbeat on.
type Session struct {
	Beat        string `json:"beat"`
	HeartbeatMs int64  `json:"heartbeat_ms"`
	LeaseMs     int64  `json:"lease_ms"`
	Session     string `json:"session"`
}

// SessionHeartbeatRequest is a heartbeat of a session.
type SessionHeartbeatRequest struct {
	After    string   `json:"after"`
	Answered []string `json:"answered,omitempty"`
	Data     []byte   `json:"data,omitempty"`
	Next     string   `json:"next"`
	Session  string   `json:"session"`
}

// SessionRenewal is a confirmed heartbeat of a session.
type SessionRenewal struct {
	HeartbeatMs int64          `json:"heartbeat_ms"`
	Requests    []SessionAsked `json:"requests"`
	UsableMs    int64          `json:"usable_ms"`
}

// SessionAsked is what was asked of the holder of a lock under a session.
type SessionAsked struct {
	At      time.Time `json:"at,omitzero"`
	By      string    `json:"by"`
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Reason  string    `json:"reason"`
	To      string    `json:"to,omitempty"`
	ToLabel string    `json:"to_label,omitempty"`
	Token   uint64    `json:"token"`
}

// SessionCloseRequest is the end of a session, as its holder says it.
type SessionCloseRequest struct {
	After   string `json:"after"`
	Session string `json:"session"`
}

// AttachRequest attaches locks to a session.
type AttachRequest struct {
	Beat    string             `json:"beat"`
	Locks   []HeartbeatRequest `json:"locks"`
	Session string             `json:"session"`
}

// AttachResponse is what became of each of them, in the same order.
type AttachResponse struct {
	Results []AttachResult `json:"results"`
}

// AttachResult is a lock that is attached, or a problem.
type AttachResult struct {
	Asked   *RequestInfo `json:"asked"`
	Name    string       `json:"name"`
	Problem Problem      `json:"problem,omitzero"`
}

// SessionReleaseRequest releases locks of a session.
type SessionReleaseRequest struct {
	Locks   []SessionRelease `json:"locks"`
	Session string           `json:"session"`
}

// SessionRelease is the end of the term of one lock under a session.
type SessionRelease struct {
	After  string `json:"after"`
	Data   []byte `json:"data,omitempty"`
	Failed string `json:"failed,omitempty"`
	Name   string `json:"name"`
	Next   string `json:"next"`
	Token  uint64 `json:"token"`
}

// SessionReleaseResponse is what became of each of them, in the same order.
type SessionReleaseResponse struct {
	Results []SessionReleaseResult `json:"results"`
}

// SessionReleaseResult says that a lock is released, or has a problem.
type SessionReleaseResult struct {
	Name    string  `json:"name"`
	Problem Problem `json:"problem,omitzero"`
}
