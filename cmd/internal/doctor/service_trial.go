// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/text"
)

// stepDown is the request that is tried.
const stepDown = "step-down"

// askPatience is how long a request may take to reach the holder, and askPause the time
// between its heartbeats meanwhile.
const (
	askPatience = 5 * time.Second
	askPause    = 50 * time.Millisecond
)

// trialHeartbeats is how many heartbeats are measured.
const trialHeartbeats = 20

// grant is a lock that the service has granted.
type grant struct {
	Token     uint64
	Beat      string
	name      string // of the lock: the service deletes its record at the end
	Lease     int64  `json:"lease_ms"`
	Heartbeat int64  `json:"heartbeat_ms"`
}

// renewal is a heartbeat that was confirmed.
type renewal struct {
	Usable int64 `json:"usable_ms"`
	Asked  *struct{ Kind string }
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// trial takes, renews and releases a lock, and asks its holder to step down.
func (s *Service) trial(ctx context.Context) {
	g, ok := s.acquire(ctx)
	if !ok {
		return
	}
	last := g.Beat
	defer func() { s.release(context.WithoutCancel(ctx), g, last) }()
	var took []time.Duration
	var got renewal
	for range trialHeartbeats {
		next, a, err := s.heartbeat(ctx, g, last)
		if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &got) != nil {
			s.Tell(driver.Bad("heartbeat", "a heartbeat failed: %s", told(a, err)).Advise("see the log of tenured"))
			return
		}
		last = next
		took = append(took, a.took)
	}
	s.Tell(judgeHeartbeats(measure(took), millis(g.Lease)))
	s.numbers(millis(g.Lease), millis(g.Heartbeat), millis(got.Usable))
	last = s.ask(ctx, g, last)
}

// acquire takes the lock.
func (s *Service) acquire(ctx context.Context) (g grant, ok bool) {
	g.name = s.Lock + text.TrialSuffix
	a, err := s.post(ctx, "/v1/acquire", map[string]any{"name": g.name, "owner": "tenure doctor " + newName()})
	switch {
	case err != nil:
		s.Tell(driver.Bad("hold", "an acquire got no answer: %v", err).Advise("try again"))
	case a.status == http.StatusForbidden:
		s.Tell(driver.Warn("hold", "the token may not hold %q, so no heartbeat was measured", s.Lock).
			Advise("name a lock that it may hold with --lock"))
	case a.status == http.StatusConflict:
		s.Tell(driver.Warn("hold", "%q is held, so no heartbeat was measured: %s", g.name, a.String()).
			Advise("another doctor is running: try again, or name another lock with --lock"))
	case a.status != http.StatusOK || json.Unmarshal(a.body, &g) != nil:
		s.Tell(driver.Bad("hold", "an acquire failed: %v", a).
			Advise("see the log of tenured, and tenure doctor on its store"))
	default:
		s.Tell(driver.OK("hold", "the token may hold %q: %q was granted within %v", s.Lock, g.name, shown(a.took)))
		return g, true
	}
	return g, false
}

func (s *Service) heartbeat(ctx context.Context, g grant, after string) (next string, a answer, err error) {
	next = after[:strings.LastIndexByte(after, '-')+1] + newName()
	a, err = s.post(ctx, "/v1/heartbeat", map[string]any{"name": g.name, "token": g.Token, "after": after, "next": next})
	return next, a, err
}

// ask checks whether a request reaches the holder, and returns the newest beat. The request
// waits for its answer, which is the release, while the holder continues.
func (s *Service) ask(ctx context.Context, g grant, last string) string {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answered := make(chan func(), 1)
	go func() {
		a, err := s.post(ctx, "/v1/requests", map[string]any{
			"name": g.name, "kind": stepDown, "reason": "tenure doctor tests it", "wait_ms": askPatience.Milliseconds(),
		})
		answered <- func() { s.unasked(a, err) }
	}()
	for {
		select {
		case tell := <-answered:
			tell()
			return last
		case <-time.After(askPause):
		}
		next, a, err := s.heartbeat(ctx, g, last)
		var got renewal
		if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &got) != nil {
			s.Tell(driver.Bad("ask", "a heartbeat after a request failed: %s", told(a, err)).
				Advise("see the log of tenured, and check that all replicas use the same store"))
			return last
		}
		last = next
		if got.Asked != nil && got.Asked.Kind == stepDown {
			s.Tell(driver.OK("ask", "a holder gets a request with its next heartbeat"))
			return last
		}
	}
}

// unasked reports a request that was answered before the holder got it.
func (s *Service) unasked(a answer, err error) {
	switch {
	case err == nil && a.status == http.StatusForbidden:
		s.Tell(driver.OK("ask", "the token may not ask the holder of %q to step down", s.Lock))
	case err == nil && a.status == http.StatusGatewayTimeout:
		s.Tell(driver.Bad("ask", "a holder did not get a request with its heartbeats").
			Advise("check that all replicas use the same store"))
	default:
		s.Tell(driver.Bad("ask", "a request failed: %s", told(a, err)).Advise("see the log of tenured"))
	}
}

func (s *Service) release(ctx context.Context, g grant, after string) {
	a, err := s.post(ctx, "/v1/release", map[string]any{"name": g.name, "token": g.Token, "after": after})
	if err != nil || a.status != http.StatusOK {
		s.Tell(driver.Warn("release", "%q was not released: %s", g.name, told(a, err)).
			Advise("it is free within %v", millis(g.Lease)))
		return
	}
	f := driver.OK("release", "%q was released", g.name)
	switch a, err := s.get(ctx, "/v1/status?name="+url.QueryEscape(g.name), s.credentials()); {
	case err == nil && a.status == http.StatusNotFound:
		f.Finding += ", and its record was deleted"
	case err == nil && a.status == http.StatusOK:
		f.Finding += "; its record stays until the doctor runs again"
	}
	s.Tell(f)
}

// told describes the result of a call.
func told(a answer, err error) string {
	if err != nil {
		return err.Error()
	}
	return a.String()
}
