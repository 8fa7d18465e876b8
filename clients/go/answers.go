// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/internal/text"
)

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
	streamType  = "text/event-stream"
	urn         = "urn:tenure:problem:"

	maxMs = 365 * 24 * 3600 * 1000 // of a length that the service gives, in milliseconds
)

// reply is an HTTP answer, whole.
type reply struct {
	status      int
	contentType string
	body        []byte
	retryAfter  string
}

// problem is why a call has no answer of the form that it asked for. The service has refused it if it
// has a kind. Otherwise its outcome is not known: whatever is not certainly the service's own answer is
// unknown.
type problem struct {
	kind       string
	status     int
	detail     string // for people
	held       HeldError
	retryAfter time.Duration
	permanent  bool // no later call to this server will be answered, until its address or a certificate is fixed
}

func unknownf(format string, a ...any) *problem { return &problem{detail: fmt.Sprintf(format, a...)} }

func (p *problem) String() string {
	if p.kind == "" {
		return p.detail
	}
	return fmt.Sprintf("%s (%d): %s", p.kind, p.status, p.detail)
}

// moves says that the next call goes to another server.
func (p *problem) moves() bool { return p.kind == "" || p.status >= 500 }

// lost says that the lock, or the session, is not this client's any more.
func (p *problem) lost() bool { return p != nil && p.kind == "lost" }

func mediaType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// read decodes the answer to a call into a value of T, which fit completes, or says what is wrong with.
func read[T, A any](r reply, fit func(*T) (A, error)) (A, *problem) {
	var none A
	switch media := mediaType(r.contentType); {
	case media == problemType:
		return none, readProblem(r)
	case r.status != 200 || media != jsonType:
		return none, unknownf("status %d of type %q, which is not an answer of the service", r.status, media)
	}
	var body T
	err := object(r.body, &body)
	if err == nil {
		var a A
		if a, err = fit(&body); err == nil {
			return a, nil
		}
	}
	return none, unknownf("status %d: %v", r.status, err)
}

// object decodes a body that is one JSON object.
func object(body []byte, to any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return fmt.Errorf("not a JSON object")
	}
	return json.Unmarshal(body, to)
}

type wireProblem struct {
	Type   string
	Status int
	Detail string
	wireHeld
}

type wireHeld struct {
	Holder   string
	Token    uint64
	Label    string
	Reserved bool
	FreeInMs int64 `json:"free_in_ms"`
}

func (w wireHeld) err() HeldError {
	free := time.Duration(min(max(w.FreeInMs, 0), maxMs)) * time.Millisecond
	return HeldError{Owner: w.Holder, Token: w.Token, FreeIn: free, Reserved: w.Reserved, Label: w.Label}
}

func readProblem(r reply) *problem {
	var w wireProblem
	err := object(r.body, &w)
	p := w.problem()
	if err != nil || p == nil || p.status != r.status {
		return unknownf("status %d: a problem that the service does not have", r.status)
	}
	seconds, _ := strconv.ParseUint(r.retryAfter, 10, 16)
	p.retryAfter = time.Duration(seconds) * time.Second
	return p
}

// problem returns nil if the service has no such problem.
func (w *wireProblem) problem() *problem {
	kind, ours := strings.CutPrefix(w.Type, urn)
	if !ours || kind == "" || w.Status < 400 {
		return nil
	}
	return &problem{kind: kind, status: w.Status, detail: w.Detail, held: w.wireHeld.err()}
}

// millis reads a whole number of milliseconds that must be there, and at least so many.
func millis(what string, ms *int64, least int64) (time.Duration, error) {
	if ms == nil || *ms < least || *ms > maxMs {
		return 0, fmt.Errorf("no good %s", what)
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

type wireTerm struct {
	Beat        string
	LeaseMs     *int64 `json:"lease_ms"`
	HeartbeatMs *int64 `json:"heartbeat_ms"`
}

func (w wireTerm) fill(g *grant) (err error) {
	if g.beat = w.Beat; strings.Count(w.Beat, "-") != 1 {
		return fmt.Errorf("no good beat")
	}
	if g.lease, err = millis("lease_ms", w.LeaseMs, 1); err == nil {
		g.period, err = millis("heartbeat_ms", w.HeartbeatMs, 1)
	}
	return err
}

type wireGrant struct {
	wireTerm
	Name        string
	Token       uint64
	Data        []byte
	FreeAfterMs *int64 `json:"free_after_ms"`
	UsableMs    *int64 `json:"usable_ms"`
	Slot, Slots *int
	FenceToken  uint64      `json:"fence_token"`
	LastWriter  *wireWriter `json:"last_writer"`
	Drain       bool
	Unwritten   []byte
}

type wireWriter struct {
	Owner string
	Token uint64
	End   string
}

// readAcquire reads the answer to an acquire of the lock, of a slot, or of a lock to read or to write.
func readAcquire(r reply, w want) (grant, *problem) {
	return read(r, func(a *wireGrant) (g grant, err error) {
		if !w.fits(a) || a.Token == 0 {
			return g, fmt.Errorf("not a grant of %q", w.name)
		}
		if err = a.fill(&g); err == nil {
			_, err = millis("free_after_ms", a.FreeAfterMs, 0)
		}
		if err == nil && a.UsableMs != nil {
			g.usable, err = millis("usable_ms", a.UsableMs, 0)
		}
		g.name, g.token, g.data = a.Name, a.Token, a.Data
		g.fence, g.drains, g.unwritten = a.FenceToken, a.Drain, a.Unwritten
		if w.kind == slotKind {
			g.slot, g.slots = *a.Slot, *a.Slots
		}
		if l := a.LastWriter; l != nil {
			g.last = &Writer{l.Owner, l.Token, l.End}
		}
		return g, err
	})
}

type wireSession struct {
	wireTerm
	Session string
}

// readSession reads the answer to the opening of a session. Its name is the id.
func readSession(r reply) (grant, *problem) {
	return read(r, func(a *wireSession) (g grant, err error) {
		if a.Session == "" {
			return g, fmt.Errorf("no session")
		}
		g.name = a.Session
		return g, a.fill(&g)
	})
}

type wireResults struct {
	Results []struct {
		Name    string
		Asked   *wireAsked
		Problem *wireProblem
	}
}

// result is what became of one of several locks.
type result struct {
	asked   *StepDownError
	problem *problem
}

// readResults reads the answer to a call about several locks.
func readResults(r reply, of []*Lease) ([]result, *problem) {
	return read(r, func(a *wireResults) (all []result, err error) {
		if len(a.Results) != len(of) {
			return nil, fmt.Errorf("%d results for %d locks", len(a.Results), len(of))
		}
		for i, w := range a.Results {
			one := result{}
			if one.asked, err = w.Asked.err(); err != nil || w.Name != of[i].grant.name {
				return nil, fmt.Errorf("no good result for %q", of[i].grant.name)
			}
			if w.Problem != nil {
				if one.problem = w.Problem.problem(); one.problem == nil {
					return nil, fmt.Errorf("a problem that the service does not have")
				}
			}
			all = append(all, one)
		}
		return all, nil
	})
}

// fits says that a grant is what was wanted. The names of others are derived: see package text.
func (w want) fits(a *wireGrant) bool {
	switch w.kind {
	case slotKind:
		return a.Slot != nil && a.Slots != nil && a.Name == w.name+text.SlotInfix+strconv.Itoa(*a.Slot)
	case readKind:
		return a.FenceToken > 0 && strings.HasPrefix(a.Name, w.name+text.ReadInfix)
	case writeKind:
		return a.FenceToken > 0 && a.Name == w.name+text.GateSuffix
	}
	return a.Name == w.name
}

type wireAsked struct {
	ID, Name, Kind, By, Reason, To string
	Token                          uint64
	ToLabel                        string `json:"to_label"`
}

func (w *wireAsked) err() (*StepDownError, error) {
	switch {
	case w == nil:
		return nil, nil
	case w.Kind == "":
		return nil, fmt.Errorf("asked is not a request")
	}
	return &StepDownError{By: w.By, Reason: w.Reason, To: w.To, ToLabel: w.ToLabel}, nil
}

type wireRenewal struct {
	UsableMs    *int64 `json:"usable_ms"`
	HeartbeatMs *int64 `json:"heartbeat_ms"`
	Asked       *wireAsked
	Requests    []wireAsked
}

// confirmation is the answer to a heartbeat. asked is of a lock, and requests are of a session.
type confirmation struct {
	renewal
	asked    *StepDownError
	requests []wireAsked
}

func readHeartbeat(r reply) (confirmation, *problem) {
	return read(r, func(w *wireRenewal) (c confirmation, err error) {
		if c.usable, err = millis("usable_ms", w.UsableMs, 0); err != nil {
			return c, err
		}
		if c.period, err = millis("heartbeat_ms", w.HeartbeatMs, 1); err != nil {
			return c, err
		}
		c.requests = w.Requests
		c.asked, err = w.Asked.err()
		return c, err
	})
}

// readDone reads an answer that says only that the call was carried out.
func readDone(r reply) (struct{}, *problem) {
	return read(r, func(*struct{}) (struct{}, error) { return struct{}{}, nil })
}
