// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// The handlers have the paths and the kinds of problems that the document has.
// internal/itest/server compares the rest.
func TestDocumentHasAllPathsAndKinds(t *testing.T) {
	inWorld(t, func(w *world) {
		var doc struct {
			Paths      map[string]map[string]any
			Components struct {
				Schemas map[string]struct {
					Properties map[string]struct {
						Description string
						Enum        []any
					}
				}
			}
		}
		if err := json.Unmarshal(server.Document(), &doc); err != nil {
			w.Fatal(err)
		}
		var written, routed []string
		for path, methods := range doc.Paths {
			for method := range methods {
				written = append(written, strings.ToUpper(method)+" "+path)
			}
		}
		for path, method := range w.Routes() {
			routed = append(routed, method+" "+path)
		}
		slices.Sort(written)
		slices.Sort(routed)
		if !slices.Equal(written, routed) {
			w.Errorf("the document has %q, and the server %q", written, routed)
		}
		kind := doc.Components.Schemas["Problem"].Properties["type"]
		names := slices.Sorted(maps.Keys(server.Kinds()))
		for _, name := range names {
			if want := fmt.Sprintf("- `urn:tenure:problem:%s` (%d): ", name,
				server.Kinds()[name]); !strings.Contains(kind.Description, want) {
				w.Errorf("the document does not say %s", want)
			}
		}
		if len(kind.Enum) != len(names) {
			w.Errorf("the document has %d kinds, and the server %d", len(kind.Enum), len(names))
		}
	})
}

// The types of bodies have the fields that the document has, and leave out what it lets them.
func TestDocumentHasTheFieldsOfBodies(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
				Required   []string
			}
		}
	}
	if err := json.Unmarshal(server.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, body := range []any{
		new(wire.AcquireRequest), new(wire.Grant), new(wire.LastWriter), new(wire.DrainRequest), new(wire.Waiting), new(wire.HeartbeatRequest), new(wire.Renewal),
		new(wire.HeartbeatsRequest), new(wire.HeartbeatsResponse), new(wire.HeartbeatResult), new(wire.ReleaseRequest),
		new(wire.AskRequest), new(wire.FenceCheckRequest), new(wire.Leader), new(wire.Status), new(wire.RequestInfo),
		new(wire.Tenure), new(wire.LocksResponse), new(wire.Unreadable), new(wire.HistoryResponse), new(wire.Event),
		new(wire.Problem), new(wire.SessionRequest), new(wire.Session), new(wire.SessionHeartbeatRequest),
		new(wire.SessionRenewal), new(wire.SessionAsked), new(wire.SessionCloseRequest), new(wire.AttachRequest),
		new(wire.AttachResponse), new(wire.AttachResult), new(wire.SessionReleaseRequest), new(wire.SessionRelease),
		new(wire.SessionReleaseResponse), new(wire.SessionReleaseResult),
	} {
		of := reflect.TypeOf(body).Elem()
		schema := doc.Components.Schemas[of.Name()]
		var all, required []string
		for field := range of.Fields() {
			name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
			all = append(all, name)
			if option == "" {
				required = append(required, name)
			}
		}
		slices.Sort(all)
		slices.Sort(required)
		slices.Sort(schema.Required)
		if want := slices.Sorted(maps.Keys(schema.Properties)); !slices.Equal(all, want) {
			t.Errorf("%s has %q, in the document %q", of.Name(), all, want)
		}
		if !slices.Equal(required, schema.Required) {
			t.Errorf("%s always has %q, by the document %q", of.Name(), required, schema.Required)
		}
	}
}
