// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tenurelock/tenure/server"
)

// load reads the document, and resolves its references.
func load(t *testing.T) *openapi3.T {
	t.Helper()
	return loadFrom(t, server.Document())
}

func loadFrom(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// loadNewer reads the document as OpenAPI 3.1. It rewrites null for this library: both
// versions describe it by an enum of null alone, without a type.
func loadNewer(t *testing.T) *openapi3.T {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(server.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	doc["openapi"] = "3.1.0"
	if n := nameNull(doc); n != 4 {
		t.Fatalf("the document has null in %d places, want 4", n)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return loadFrom(t, text)
}

func nameNull(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			n += nameNull(one)
		}
	case map[string]any:
		if enum, ok := v["enum"].([]any); ok && len(v) == 1 && len(enum) == 1 && enum[0] == nil {
			delete(v, "enum")
			v["type"] = "null"
			return 1
		}
		for _, one := range v {
			n += nameNull(one)
		}
	}
	return n
}

// The document is valid OpenAPI 3.0 and 3.1, with its examples and defaults.
func TestDocumentIsValid(t *testing.T) {
	if err := load(t).Validate(t.Context(), openapi3.DisableExamplesValidation()); err != nil { // some have null
		t.Errorf("by 3.0: %v", err)
	}
	newer := loadNewer(t)
	if err := newer.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation()); err != nil {
		t.Errorf("by 3.1: %v", err)
	}
}

// Each operation has its answers, an example of its body, and an id, each schema is used, and its
// properties are described.
func TestDocumentIsWhole(t *testing.T) {
	doc := load(t)
	ids := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" || op.Description == "" {
				t.Errorf("%s: no id of its own, or no words", where)
			}
			ids[op.OperationID] = true
			if op.Responses.Status(200) == nil {
				t.Errorf("%s: no answer 200", where)
			}
			if method == http.MethodPost {
				if body := op.RequestBody.Value.Content.Get("application/json"); body == nil || len(body.Examples) == 0 {
					t.Errorf("%s: no example of the body", where)
				}
			}
		}
	}
	text := string(server.Document())
	for name, schema := range doc.Components.Schemas {
		streamed := name == "Waiting" || name == "Event" // no schema can name what is in a stream
		if !streamed && !strings.Contains(text, `"#/components/schemas/`+name+`"`) {
			t.Errorf("schema %s is not used", name)
		}
		for property, p := range schema.Value.Properties {
			if p.Ref == "" && p.Value.Description == "" {
				t.Errorf("schema %s: property %s is not described", name, property)
			}
		}
	}
}

// exchange is a line of the file that the tests of package server write.
type exchange struct {
	Method, URL string
	Body        []byte
	Status      int
	Type        string
	Answer      []byte
}

// All calls and answers of the tests of package server match the document, the good ones
// and the problems. They cover each operation and each kind of problem.
func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	all := record(t)
	doc := loadNewer(t)
	j := &judge{doc: doc, seen: map[string]int{}}
	for _, x := range all {
		if err := j.check(x); err != nil {
			t.Errorf("%s %s: %d %.300s: %v", x.Method, x.URL, x.Status, x.Answer, err)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if what := fmt.Sprintf("%s %s 200", method, path); j.seen[what] == 0 {
				t.Errorf("no test has had %s", what)
			}
		}
	}
	for _, kind := range doc.Components.Schemas["Problem"].Value.Properties["type"].Value.Enum {
		if j.seen[fmt.Sprint(kind)] == 0 {
			t.Errorf("no test has had a problem %v", kind)
		}
	}
	t.Logf("%d calls, %d kinds of answers", len(all), len(j.seen))

	// The judge finds what is wrong.
	for _, bad := range []exchange{
		{"GET", "/v1/status?name=x", nil, 200, "application/json", []byte(`{"name":"x"}`)},
		{"GET", "/v1/status?name=x", nil, 418, "application/problem+json", []byte(`{}`)},
		{"GET", "/v1/status?name=x", nil, 404, "application/problem+json", []byte(`{"type":"urn:tenure:problem:odd","title":"x","status":404,"detail":"x"}`)},
		{"GET", "/v1/status?name=x", nil, 404, "application/problem+json", []byte(`{"type":"urn:tenure:problem:not-found","title":"x","status":400,"detail":"x"}`)},
		{"GET", "/v1/status?name=x", nil, 404, "text/html", []byte(`<p>`)},
		{"POST", "/v1/release", []byte(`{"name":"x"}`), 200, "application/json", []byte(`{}`)},
		{"POST", "/v1/acquire", []byte(`{"name":"x","owner":"y"}`), 200, "text/event-stream", []byte("event: granted\ndata: {}\n\n")},
		{"GET", "/v1/events?name=x", nil, 200, "application/x-ndjson", []byte(`{"event":"odd"}`)},
	} {
		if j.check(bad) == nil {
			t.Errorf("nothing is wrong with %s %s: %d %s", bad.Method, bad.URL, bad.Status, bad.Answer)
		}
	}
}

// record runs the tests of package server, and returns their calls and answers.
func record(t *testing.T) []exchange {
	t.Helper()
	file := filepath.Join(t.TempDir(), "answers")
	test := exec.CommandContext(t.Context(), "go", "test", "-count=1", "github.com/tenurelock/tenure/server")
	test.Env = append(os.Environ(), "TENURE_TEST_ANSWERS="+file)
	if out, err := test.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", test, err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []exchange
	for line := range bytes.Lines(text) {
		var x exchange
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// judge compares calls and answers with the document.
type judge struct {
	doc  *openapi3.T
	seen map[string]int // operations with their status, and kinds of problems
}

func (j *judge) check(x exchange) error {
	path, _, _ := strings.Cut(x.URL, "?")
	var op *openapi3.Operation
	if item := j.doc.Paths.Value(path); item != nil {
		method := x.Method
		if method == http.MethodHead {
			if x.Status == http.StatusMethodNotAllowed {
				return nil // no operation, and no body
			}
			method, x.Type = http.MethodGet, ""
		}
		op = item.GetOperation(method)
	}
	if op == nil { // no operation: a problem, or a page of the server itself
		if strings.HasPrefix(path, "/v1/") || x.Status >= 400 {
			return j.problem(x)
		}
		return nil
	}
	j.seen[fmt.Sprintf("%s %s %d", x.Method, path, x.Status)]++
	answer := op.Responses.Status(x.Status)
	switch {
	case answer == nil:
		return fmt.Errorf("status %d is not among the answers", x.Status)
	case x.Type == "":
		return nil // the answer to HEAD
	case x.Status >= 400:
		return j.problem(x)
	case len(x.Body) > 0 && !bytes.Contains(x.Answer, []byte(`"urn:tenure:problem:bad-request"`)): // of one of many
		if err := j.matches(op.RequestBody.Value.Content.Get("application/json").Schema, x.Body); err != nil {
			return fmt.Errorf("the call was good, and not as the document has it: %w", err)
		}
	}
	media, _, _ := strings.Cut(x.Type, ";")
	content := answer.Value.Content.Get(media)
	switch {
	case content == nil:
		return fmt.Errorf("%s is not among the types of the answer", media)
	case media == "application/json":
		return j.matches(content.Schema, x.Answer)
	case media == "text/event-stream":
		return j.events(x.Answer)
	case media == "application/x-ndjson":
		return j.lines(x.Answer)
	}
	return nil
}

func (j *judge) matches(schema *openapi3.SchemaRef, text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return schema.Value.VisitJSON(v)
}

func (j *judge) schema(name string, text []byte) error {
	if err := j.matches(j.doc.Components.Schemas[name], text); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// problem checks a problem, and that it has the status of its kind.
func (j *judge) problem(x exchange) error {
	if x.Type != "application/problem+json" {
		return fmt.Errorf("content type %q: want application/problem+json", x.Type)
	}
	if err := j.schema("Problem", x.Answer); err != nil {
		return err
	}
	var p struct {
		Type   string
		Status int
	}
	if err := json.Unmarshal(x.Answer, &p); err != nil {
		return err
	}
	described := j.doc.Components.Schemas["Problem"].Value.Properties["type"].Value.Description
	if p.Status != x.Status || !strings.Contains(described, "`"+p.Type+"` ("+strconv.Itoa(x.Status)+")") {
		return fmt.Errorf("a problem %s of status %d with status %d", p.Type, p.Status, x.Status)
	}
	j.seen[p.Type]++
	return nil
}

// events checks a stream of server-sent events. The last one may be cut off.
func (j *judge) events(text []byte) error {
	schemas := map[string]string{"waiting": "Waiting", "granted": "Grant", "problem": "Problem", "status": "Status"}
	for event := range strings.SplitSeq(string(text), "\n\n") {
		name, rest, found := strings.Cut(event, "\ndata: ")
		if i := strings.LastIndex(name, "event: "); found && i >= 0 {
			name = name[i+len("event: "):]
			if name == "gone" {
				continue
			}
			if schemas[name] == "" {
				return fmt.Errorf("an event %q", name)
			}
			if err := j.schema(schemas[name], []byte(rest)); err != nil {
				return err
			}
		} else if event != "" && event != ": alive" {
			return fmt.Errorf("no event: %q", event)
		}
	}
	return nil
}

func (j *judge) lines(text []byte) error {
	for line := range bytes.Lines(text) {
		if err := j.schema("Event", line); err != nil {
			return err
		}
	}
	return nil
}
