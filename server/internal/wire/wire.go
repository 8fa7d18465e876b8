// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire has the types of the bodies of the lock service. server/openapi.json describes
// their fields; a test of package server compares the two.
package wire

import "time"

// Empty is an answer without content.
type Empty struct{}

// AcquireRequest is a call to acquire a lock.
type AcquireRequest struct {
	Clock     string `json:"clock,omitempty"`
	Data      []byte `json:"data,omitempty"`
	Exclusive bool   `json:"exclusive,omitempty"`
	History   bool   `json:"history,omitempty"`
	Host      string `json:"host,omitempty"`
	Label     string `json:"label,omitempty"`
	Name      string `json:"name"`
	Owner     string `json:"owner"`
	Shared    bool   `json:"shared,omitempty"`
	Slots     *int64 `json:"slots,omitempty"`
	WaitMs    int64  `json:"wait_ms,omitempty"`
}

// Grant is a lock that was granted: the client holds it from its first confirmed heartbeat on, or, if
// UsableMs is not 0 and the answer came soon enough, at once.
type Grant struct {
	Beat        string     `json:"beat"`
	Data        []byte     `json:"data,omitempty"`
	Drain       bool       `json:"drain,omitempty"`
	FenceToken  uint64     `json:"fence_token,omitempty"`
	FreeAfterMs int64      `json:"free_after_ms"`
	HeartbeatMs int64      `json:"heartbeat_ms"`
	LastWriter  LastWriter `json:"last_writer,omitzero"`
	LeaseMs     int64      `json:"lease_ms"`
	Name        string     `json:"name"`
	Slot        *int64     `json:"slot,omitempty"`
	Slots       int64      `json:"slots,omitempty"`
	Token       uint64     `json:"token"`
	Unwritten   []byte     `json:"unwritten,omitempty"`
	UsableMs    int64      `json:"usable_ms,omitempty"`
}

// LastWriter is the last term of a lock for readers and writers in which its holder wrote.
type LastWriter struct {
	End   string `json:"end"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
}

// DrainRequest is a writer's wait for the readers that its acquire has met.
type DrainRequest struct {
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
	WaitMs int64  `json:"wait_ms,omitempty"`
}

// Waiting is the holder that an acquire waits for.
type Waiting struct {
	FreeInMs int64  `json:"free_in_ms"`
	Holder   string `json:"holder"`
	Label    string `json:"label,omitempty"`
	Reserved bool   `json:"reserved"`
	Token    uint64 `json:"token"`
}

// HeartbeatRequest is a heartbeat of one lock.
type HeartbeatRequest struct {
	After string `json:"after"`
	Name  string `json:"name"`
	Next  string `json:"next"`
	Token uint64 `json:"token"`
}

// Renewal is a confirmed heartbeat.
type Renewal struct {
	Asked       *RequestInfo `json:"asked"`
	HeartbeatMs int64        `json:"heartbeat_ms"`
	UsableMs    int64        `json:"usable_ms"`
}

// HeartbeatsRequest is heartbeats of many locks.
type HeartbeatsRequest struct {
	Locks []HeartbeatRequest `json:"locks"`
}

// HeartbeatsResponse is what became of each of them, in the same order.
type HeartbeatsResponse struct {
	Results []HeartbeatResult `json:"results"`
}

// HeartbeatResult is a renewal, or a problem.
type HeartbeatResult struct {
	Asked       *RequestInfo `json:"asked"`
	HeartbeatMs *int64       `json:"heartbeat_ms,omitempty"`
	Name        string       `json:"name"`
	Problem     Problem      `json:"problem,omitzero"`
	UsableMs    *int64       `json:"usable_ms,omitempty"`
}

// ReleaseRequest is the end of a term, as its holder says it.
type ReleaseRequest struct {
	After  string `json:"after"`
	Data   []byte `json:"data,omitempty"`
	Failed string `json:"failed,omitempty"`
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
}

// AskRequest is an operator's request.
type AskRequest struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	To      string `json:"to,omitempty"`
	ToLabel string `json:"to_label,omitempty"`
	WaitMs  *int64 `json:"wait_ms,omitempty"`
}

// FenceCheckRequest is a question of a resource that was asked to write under a token.
type FenceCheckRequest struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
}

// Leader is the holder of a lock.
type Leader struct {
	Holder string `json:"holder"`
	Label  string `json:"label"`
	Token  uint64 `json:"token"`
}

// Status is what the record of a lock shows.
type Status struct {
	Data             []byte        `json:"data,omitempty"`
	DataBytes        int64         `json:"data_bytes"`
	End              string        `json:"end,omitempty"`
	EndedBy          RequestInfo   `json:"ended_by,omitzero"`
	FreeInMs         int64         `json:"free_in_ms"`
	HeartbeatMs      int64         `json:"heartbeat_ms,omitempty"`
	Holder           string        `json:"holder"`
	Host             string        `json:"host"`
	InDoubt          bool          `json:"in_doubt"`
	Label            string        `json:"label"`
	LeaseMs          int64         `json:"lease_ms,omitempty"`
	Name             string        `json:"name"`
	Previous         Tenure        `json:"previous,omitzero"`
	Priority         int64         `json:"priority,omitempty"`
	Requests         []RequestInfo `json:"requests"`
	ReservedFor      string        `json:"reserved_for,omitempty"`
	ReservedForLabel string        `json:"reserved_for_label,omitempty"`
	SeenAliveMs      int64         `json:"seen_alive_ms"`
	Session          string        `json:"session,omitempty"`
	Since            time.Time     `json:"since,omitzero"`
	State            string        `json:"state"`
	Token            uint64        `json:"token"`
	Until            time.Time     `json:"until,omitzero"`
}

// RequestInfo is what was asked of a holder.
type RequestInfo struct {
	At      time.Time `json:"at,omitzero"`
	By      string    `json:"by"`
	Kind    string    `json:"kind"`
	Reason  string    `json:"reason"`
	To      string    `json:"to,omitempty"`
	ToLabel string    `json:"to_label,omitempty"`
}

// Tenure is one holder's time with a lock.
type Tenure struct {
	End     string      `json:"end,omitempty"`
	Holder  string      `json:"holder"`
	Host    string      `json:"host"`
	Label   string      `json:"label"`
	Request RequestInfo `json:"request,omitzero"`
	Since   time.Time   `json:"since,omitzero"`
	Token   uint64      `json:"token"`
	Unknown bool        `json:"unknown"`
	Until   time.Time   `json:"until,omitzero"`
}

// LocksResponse is a page of locks, in the order of their names.
type LocksResponse struct {
	Locks      []Status     `json:"locks"`
	Next       string       `json:"next,omitempty"`
	Unreadable []Unreadable `json:"unreadable,omitempty"`
}

// Unreadable is a record that this server cannot read.
type Unreadable struct {
	Detail string `json:"detail"`
	Name   string `json:"name"`
}

// HistoryResponse is a page of terms of a lock, the newest first.
type HistoryResponse struct {
	Name  string   `json:"name"`
	Next  uint64   `json:"next,omitempty"`
	Terms []Tenure `json:"tenures"`
}

// Event is one line of /v1/events in application/x-ndjson.
type Event struct {
	Event   string  `json:"event"`
	Name    string  `json:"name,omitempty"`
	Problem Problem `json:"problem,omitzero"`
	Status  Status  `json:"status,omitzero"`
}

// Problem is why a call has failed (RFC 9457).
type Problem struct {
	Detail   string      `json:"detail"`
	FreeInMs *int64      `json:"free_in_ms,omitempty"`
	Holder   *string     `json:"holder,omitempty"`
	Label    string      `json:"label,omitempty"`
	Request  RequestInfo `json:"request,omitzero"`
	Reserved *bool       `json:"reserved,omitempty"`
	Status   int32       `json:"status"`
	Title    string      `json:"title"`
	Token    *uint64     `json:"token,omitempty"`
	Type     string      `json:"type"`
}
