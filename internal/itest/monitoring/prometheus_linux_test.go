// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// process is a program of a test. It ends with the test.
type process struct {
	cmd *exec.Cmd
	log *bytes.Buffer
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, log: new(bytes.Buffer)}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), p.log)
		}
	})
	return p
}

// end kills the program.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// monitor is a Prometheus that runs the rules, with short intervals.
type monitor struct {
	t   *testing.T
	url string
}

// shorter has the rules fit to a test: scrapes come each second.
var shorter = [][2]string{{"[5m]", "[15s]"}, {"[15m]) > 5", "[45s]) > 5"}, {"[15m]) > 0", "[15s]) > 0"}, {"[1h]", "[5m]"}, {"for: 1m", "for: 8s"}, {"for: 2m", "for: 8s"}}

func startPrometheus(t *testing.T, jobs map[string][]int) *monitor {
	t.Helper()
	tool := program(t, "prometheus")
	rules := read(t, "rules.yaml")
	for _, s := range shorter {
		if !strings.Contains(rules, s[0]) {
			t.Fatalf("the rules have no %s", s[0])
		}
		rules = strings.ReplaceAll(rules, s[0], s[1])
	}
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\nscrape_configs:\n")
	for job, ports := range jobs {
		var targets []string
		for _, port := range ports {
			targets = append(targets, fmt.Sprintf("'127.0.0.1:%d'", port))
		}
		fmt.Fprintf(&config, "  - job_name: %s\n    static_configs: [{targets: [%s]}]\n", job, strings.Join(targets, ", "))
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "prometheus.yaml": config.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listen := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	start(t, exec.Command(tool, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen, "--log.level=warn"))
	m := &monitor{t, "http://" + listen}
	until(t, "Prometheus answers", func() bool { return len(m.instant("vector(1)")) == 1 })
	return m
}

// patience is how long a test waits for what must happen, on a busy machine.
const patience = 3 * time.Minute

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so within %v: %s", patience, what)
		}
	}
}

// series is a time series of an answer.
type series struct {
	Metric map[string]string
	Values [][2]any
	Value  [2]any
}

// ask asks the API. An answer that is no success is an error.
func (m *monitor) ask(path string, query url.Values) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.t.Context()), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var told struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&told); err != nil {
		return nil, err
	}
	if told.Status != "success" {
		return nil, fmt.Errorf("%s: %s", told.Status, told.Error)
	}
	return told.Data, nil
}

// instant returns what an expression has now; nothing while Prometheus gives no answer.
func (m *monitor) instant(expr string) []series {
	data, err := m.ask("/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil
	}
	var told struct{ Result []series }
	if err := json.Unmarshal(data, &told); err != nil {
		m.t.Fatal(err)
	}
	return told.Result
}

// over returns what an expression had from an instant until now, second by second.
func (m *monitor) over(expr string, from time.Time) []series {
	m.t.Helper()
	data, err := m.ask("/api/v1/query_range", url.Values{
		"query": {expr}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(time.Now().Unix())}, "step": {"1"},
	})
	if err != nil {
		m.t.Fatalf("%s: %v", expr, err)
	}
	var told struct{ Result []series }
	if err := json.Unmarshal(data, &told); err != nil {
		m.t.Fatal(err)
	}
	return told.Result
}

func (m *monitor) fires(alert string) bool {
	return len(m.instant(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, alert))) > 0
}

// firings are when an alert was firing, from the first second to the last one.
type firing struct{ from, to int64 }

// firings returns all that fired since an instant, by the alert's name. Two series of one
// alert that follow each other within ten seconds, as those of a store that is away and of
// its exporter, are one.
func (m *monitor) firings(since time.Time) map[string][]firing {
	m.t.Helper()
	all := map[string][]firing{}
	for _, s := range m.over(`max by (alertname) (ALERTS{alertstate="firing"})`, since) {
		name := s.Metric["alertname"]
		for _, v := range s.Values {
			at := int64(v[0].(float64))
			list := all[name]
			if n := len(list); n > 0 && at-list[n-1].to <= 10 {
				list[n-1].to = at
				continue
			}
			all[name] = append(list, firing{at, at})
		}
	}
	return all
}
