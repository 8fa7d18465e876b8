// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenurelock/tenure"
)

var (
	eventInHelp = regexp.MustCompile(`^  ([a-z_]+)(?:  .*)?$`)
	wordInHelp  = regexp.MustCompile(`[a-z_]+`)
)

// commonFields are those that any event may have.
var commonFields = []string{"time", "event", "lock", "session", "owner", "token", "missed_events"}

// documented returns the events that help/events.txt lists, with the fields of
// a record that it names for each, in order.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, known := helpOf("events")
	if !known {
		t.Fatal("there is no help about events")
	}
	_, text, _ = strings.Cut(text, "\nEvents of a lock:\n")
	text, _, found := strings.Cut(text, "\nThe objects of status")
	if !found {
		t.Fatal("the help about events has another form")
	}
	fields := tagsOf(reflect.TypeFor[record]())
	events := map[string][]string{}
	event, listing := "", false // the fields stand behind a colon
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, " ") {
			event = "" // a heading
		}
		if m := eventInHelp.FindStringSubmatch(line); m != nil {
			event, listing = m[1], false
			events[event] = nil
			line = line[2+len(event):]
		}
		if before, after, found := strings.Cut(line, ":"); found && !listing {
			line, listing = after, true
		} else if !listing {
			line = before[:0]
		}
		for _, word := range wordInHelp.FindAllString(line, -1) {
			if event != "" && slices.Contains(fields, word) && !slices.Contains(events[event], word) {
				events[event] = append(events[event], word)
			}
		}
	}
	for _, fields := range events {
		slices.Sort(fields)
	}
	return events
}

// tagsOf returns the names of a struct's fields in JSON.
func tagsOf(of reflect.Type) []string {
	var all []string
	for _, field := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous {
			all = append(all, name)
		}
	}
	return all
}

// Every event that --json shows is in the help, and none that it does not.
func TestEventsAreDocumented(t *testing.T) {
	// The root module is beside this one in the repository, and nowhere else.
	files, err := filepath.Glob("../../../*.go")
	if err != nil || len(files) == 0 {
		t.Skip("outside of the repository: ", err)
	}
	kind := regexp.MustCompile(`\n\s(?:Event\w+ +EventKind|event\w+) += "(\w+)"`)
	var emitted []string
	for _, file := range append(files, "console.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range kind.FindAllStringSubmatch(string(text), -1) {
			emitted = append(emitted, m[1])
		}
	}
	notices, err := os.ReadFile("../guard/command.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`NoticeKind = "(\w+)"`).FindAllStringSubmatch(string(notices), -1) {
		emitted = append(emitted, "command_"+m[1])
	}
	if len(emitted) < 20 {
		t.Fatalf("found %d events alone: %q", len(emitted), emitted)
	}
	slices.Sort(emitted)
	if d := cmp.Diff(emitted, slices.Sorted(maps.Keys(documented(t)))); d != "" {
		t.Errorf("events (- are, + in the help):\n%s", d)
	}
}

// Every field of an event of the client is in the help of that event, and none
// that it never has.
func TestFieldsOfEventsAreDocumented(t *testing.T) {
	for kind, want := range documented(t) {
		if !slices.Contains(clientEvents, tenure.EventKind(kind)) {
			continue
		}
		e := tenure.Event{
			Kind: tenure.EventKind(kind), Lock: "l", Session: "s", Owner: "o", Token: 1, Time: time.Now(),
			Took: 1, Remaining: 1, Held: 1, Busy: 1, Share: 0.5, Missed: 1, End: tenure.EndFailed,
		}
		switch {
		case slices.Contains(want, "request"):
			e.Err = &tenure.StepDownError{By: "b", Reason: "r", To: "t"}
		case slices.Contains(want, "cause"), slices.Contains(want, "error"):
			e.Err = tenure.ErrExpired
		}
		b, err := json.Marshal(recordOf(e))
		if err != nil {
			t.Fatal(err)
		}
		var have map[string]any
		if err := json.Unmarshal(b, &have); err != nil {
			t.Fatal(err)
		}
		for _, field := range commonFields {
			if _, has := have[field]; !has {
				t.Errorf("%s lacks %s", kind, field)
			}
			delete(have, field)
		}
		if d := cmp.Diff(want, slices.Sorted(maps.Keys(have))); d != "" {
			t.Errorf("fields of %s (- in the help, + are):\n%s", kind, d)
		}
	}
	text, _ := helpOf("events")
	for _, field := range tagsOf(reflect.TypeFor[record]()) {
		if !slices.Contains(wordInHelp.FindAllString(text, -1), field) {
			t.Errorf("%s is nowhere in the help about events", field)
		}
	}
}

// clientEvents are those that recordOf makes records of.
var clientEvents = []tenure.EventKind{
	tenure.EventWaiting, tenure.EventAcquired, tenure.EventRenewed, tenure.EventJeopardy, tenure.EventSafe,
	tenure.EventStopping, tenure.EventLost, tenure.EventStopTimeout, tenure.EventBusy, tenure.EventReleased,
	tenure.EventEnded, tenure.EventStoreError, tenure.EventOpened, tenure.EventClosed,
}

// The objects of the other commands are in their help.
func TestFieldsOfObjectsAreDocumented(t *testing.T) {
	for _, o := range []struct {
		object reflect.Type
		topics []string
	}{
		{reflect.TypeFor[object](), []string{"status"}},
		{reflect.TypeFor[requestJSON](), []string{"status", "history"}},
		{reflect.TypeFor[termJSON](), []string{"history"}},
		{reflect.TypeFor[atJSON](), []string{"history"}},
		{reflect.TypeFor[result](), []string{"step-down"}},
		{reflect.TypeFor[party](), []string{"step-down", "release"}},
		{reflect.TypeFor[groupJSON](), []string{"shard"}},
		{reflect.TypeFor[memberJSON](), []string{"shard"}},
		{reflect.TypeFor[partitionJSON](), []string{"shard"}},
		{reflect.TypeFor[move](), []string{"shard"}},
		{reflect.TypeFor[unowned](), []string{"shard"}},
		{reflect.TypeFor[resized](), []string{"shard"}},
		{reflect.TypeFor[swept](), []string{"sweep"}},
		{reflect.TypeFor[raisedTokens](), []string{"tokens"}},
	} {
		for _, topic := range o.topics {
			text, _ := helpOf(topic)
			for _, field := range tagsOf(o.object) {
				if !slices.Contains(wordInHelp.FindAllString(text, -1), field) {
					t.Errorf("%s of %v is not in the help of %s", field, o.object, topic)
				}
			}
		}
	}
}
