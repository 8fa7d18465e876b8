// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/faultstore"
)

// follow opens a stream of events.
func (w *world) follow(secret, query, accept string) *stream {
	r := request("GET", "/v1/events?"+query, secret, nil)
	r.Header.Set("Accept", accept)
	return w.open(r)
}

// lines returns what the lines of a stream say: the event, the name and the state.
func (s *stream) lines() (all []string) {
	for line := range strings.Lines(s.String()) {
		var e struct {
			Event, Name string
			Status      struct{ Name, State string }
			Problem     struct{ Type string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			panic(err)
		}
		if e.Event != "alive" {
			all = append(all, strings.Join(strings.Fields(
				e.Event+" "+e.Name+e.Status.Name+" "+e.Status.State+e.Problem.Type), " "))
		}
	}
	return all
}

func TestALockIsFollowed(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.follow(ci, "name=jobs/a", "application/x-ndjson")
		time.Sleep(time.Second)
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		time.Sleep(3 * time.Second)
		h.beats()
		time.Sleep(3 * time.Second)
		h.beats()
		asking := w.ask(ops, "jobs/a", "step-down")
		time.Sleep(3 * time.Second)
		w.want(h.release(), 200, "")
		<-asking.ended
		time.Sleep(3 * time.Second)
		if got, want := s.lines(), []string{
			"gone jobs/a", "status jobs/a held", "status jobs/a held",
			"status jobs/a released",
		}; !slices.Equal(got, want) {
			w.Errorf("it says %q, want %q: heartbeats are no news, a request is", got, want)
		}
		if s.Header().Get("Content-Type") != "application/x-ndjson" || !strings.Contains(s.String(), `{"event":"alive"}`) {
			w.Errorf("%v: %s", s.Header(), s)
		}
		s.leave()
		if n := w.Feeds(); n != 0 {
			w.Errorf("%d feeds are left", n)
		}
	})
}

func TestAPrefixIsFollowed(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.acquire(alice, "jobs/a", "web-7")
		w.acquire(alice, "other/x", "web-7")
		mine, all := w.follow(ci, "prefix=", "text/event-stream"), w.follow(alice, "prefix=", "text/event-stream")
		twin := w.follow(alice, "prefix=", "text/event-stream")
		time.Sleep(time.Second)
		if n := w.Feeds(); n != 2 {
			w.Errorf("%d feeds for two prefixes", n)
		}
		w.acquire(alice, "jobs/b", "web-7")
		w.want(a.release(), 200, "")
		time.Sleep(3 * time.Second)
		if n := strings.Count(mine.String(), "event: "); n != 3 || strings.Contains(mine.String(), "other/x") ||
			!strings.Contains(mine.String(), "jobs/b") {
			w.Errorf("ci sees %d events: %s", n, mine)
		}
		if n := strings.Count(all.String(), "event: "); n != 4 || all.String() != twin.String() {
			w.Errorf("alice sees %d events: %s", n, all)
		}
		if !strings.Contains(w.get("/metrics", ci).text, `tenure_server_waits{for="events"} 3`) {
			w.Error("the streams are not counted")
		}
		for _, s := range []*stream{mine, all, twin} {
			s.leave()
		}
	})
}

// A client that follows names without locks learns at once that the stream has begun.
func TestAStreamBeginsAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
			s := w.follow(ci, "prefix=jobs/", accept)
			synctest.Wait()
			if s.Code != 200 || s.Header().Get("Content-Type") != accept {
				w.Errorf("%s: status %d, %v", accept, s.Code, s.Header())
			}
			s.leave()
		}
	})
}

func TestAStreamOutlivesAStoreThatIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		h.beats()
		s := w.follow(ci, "prefix=jobs/", "application/x-ndjson")
		time.Sleep(time.Second)
		w.client.Partition()
		time.Sleep(2 * lease)
		w.client.Heal()
		time.Sleep(2 * lease)
		got := s.lines()
		if len(got) < 3 || got[0] != "status jobs/a held" || got[1] != "problem urn:tenure:problem:unavailable" ||
			got[2] != "status jobs/a held" {
			w.Errorf("it says %q", got)
		}
		if slices.Contains(got, "gone jobs/a") {
			w.Error("a store that is away looks like one whose locks are gone")
		}
		s.leave()
	})
}

func TestARecordThatIsDeletedIsGone(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(ci, "jobs/a", "web-7")
		w.acquire(ci, "jobs/b", "web-7").beats()
		w.want(h.release(), 200, "")
		s := w.follow(ci, "prefix=jobs/", "application/x-ndjson")
		time.Sleep(2 * time.Minute)
		if _, err := admin.SweepReleased(w.Context(), w.client.Client, "jobs/",
			&admin.SweepOptions{ReleasedFor: time.Minute, RestartTokens: true}); err != nil {
			w.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if got := s.lines(); !slices.Contains(got, "gone jobs/a") {
			w.Errorf("it says %q", got)
		}
		s.leave()
	})
}

// A reader costs other clients nothing, however many prefixes it follows: prefixes within
// another prefix share its list and snapshot, and the pauses between lists are longer than lists.
func TestStreamsOfManyPrefixesShareOneList(t *testing.T) {
	inWorld(t, func(w *world) {
		const locks, streams = 200, 100
		long := "jobs/" + strings.Repeat("s", 250)
		w.fill(long, locks)
		before := heap()
		var all []*stream
		for i := range streams {
			all = append(all, w.follow(ci, "prefix="+long[:len(long)-i], "application/x-ndjson"))
			time.Sleep(time.Second / 50) // as many calls a second as it may
		}
		within := w.follow(ci, "prefix="+long+"00001", "application/x-ndjson")
		time.Sleep(time.Second)
		if n := len(within.lines()); n != 10 {
			w.Errorf("a client that follows 10 of the locks gets %d", n)
		}
		for _, s := range all {
			if n := strings.Count(s.String(), "\n"); n < locks {
				w.Fatalf("a stream has %d locks", n)
			}
			s.Body = new(bytes.Buffer) // what the client keeps is no cost of the server's
		}
		if grown := heap() - before; grown > 3<<20 {
			w.Errorf("%d streams cost %d MiB", streams, grown>>20)
		}
		// With a delay each read takes seconds, for all of them.
		w.client.Faults().Inject(faultstore.Rule{
			Ops:   []faultstore.Op{faultstore.OpList},
			Fault: faultstore.Fault{Before: time.Second},
		})
		time.Sleep(10 * time.Second)
		w.client.Faults().ResetLog()
		time.Sleep(time.Minute)
		if n := w.client.Faults().Count(faultstore.OpList); n > 60/5+1 {
			w.Errorf("the store was asked for %d pages in a minute", n)
		}
		for _, s := range append(all, within) {
			s.leave()
		}
		if n := w.Feeds(); n != 0 {
			w.Errorf("%d feeds are left", n)
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A prefix whose list does not end in time does not keep the others from theirs.
func TestAListThatIsTooLongIsOneStreams(t *testing.T) {
	inWorld(t, func(w *world) {
		w.acquire(ci, "jobs/b/1", "web-7")
		w.client.Faults().Inject(faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpList}, Key: "jobs/",
			Fault: faultstore.Fault{Before: time.Minute},
		})
		wide := w.follow(ci, "prefix=jobs/", "application/x-ndjson")
		time.Sleep(time.Second)
		narrow := w.follow(ci, "prefix=jobs/b/", "application/x-ndjson")
		time.Sleep(2 * time.Minute)
		if got := wide.lines(); len(got) == 0 || got[0] != "problem urn:tenure:problem:unavailable" {
			w.Errorf("who follows all is told %q", got)
		}
		if got := narrow.lines(); !slices.ContainsFunc(got,
			func(s string) bool { return strings.HasPrefix(s, "status jobs/b/1") }) {
			w.Errorf("who follows one is told %q", got)
		}
		wide.cancel()
		narrow.cancel()
		<-wide.ended
		<-narrow.ended
	})
}

// A stream outlives no token.
func TestAStreamEndsWithItsToken(t *testing.T) {
	inWorldWithFile(t, principalsText, func(w *world, write func(string)) {
		s, narrow := w.follow(ci, "prefix=", "application/x-ndjson"), w.follow(ops, "name=jobs/a", "application/x-ndjson")
		time.Sleep(time.Second)
		write(fmt.Sprintf("alice %s admin:\nops %s read:web/\n", alice, ops))
		time.Sleep(6 * time.Second)
		<-s.ended
		<-narrow.ended
		for end, s := range map[string]*stream{"unauthenticated": s, "forbidden": narrow} {
			if got := s.lines(); len(got) == 0 || got[len(got)-1] != "problem urn:tenure:problem:"+end {
				w.Errorf("it ends with %q, want %s", got, end)
			}
		}
	})
}

func TestStreamsThatBreakARule(t *testing.T) {
	inWorld(t, func(w *world) {
		for query, want := range map[string]int{
			"": 400, "name=jobs/a&prefix=b": 400, "name=": 400, "name=tenure/x": 400, "name=web/a": 403, "prefix=web/": 403,
			"name=jobs/" + strings.Repeat("x", 1100): 400, "prefix=" + strings.Repeat("x", 1100): 400,
		} {
			if a := w.get("/v1/events?"+query, ci); a.status != want {
				w.Errorf("%.40s: %d, want %d: %s", query, a.status, want, a.text)
			}
		}
		w.want(w.do(request("HEAD", "/v1/events?name=jobs/a", ci, nil)), 405, "")
		r := request("GET", "/v1/events?name=jobs/a", ci, nil)
		r.Header.Set("Accept", "text/html")
		w.want(w.do(r), 400, "bad-request")
	})
}

func TestAStreamFollowsNotTooManyLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fill("jobs/", 10_001)
		s := w.follow(ci, "prefix=jobs/", "application/x-ndjson")
		<-s.ended
		if got := s.lines(); !slices.Equal(got, []string{"problem urn:tenure:problem:too-large"}) {
			w.Errorf("it says %q", got)
		}
	})
}
