// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
)

// stage is a group of programs, an exporter, and a Prometheus that scrapes all of them.
type stage struct {
	t        *testing.T
	tenure   string // the command
	store    string // the database
	db       *pgx.Conn
	relay    *enginetest.Relay // before the database, for the exporter
	ports    []int             // of the programs; the last one is for a program on another store
	programs map[int]*process
	*monitor
}

func newStage(t *testing.T) *stage {
	t.Helper()
	program(t, "prometheus")
	server := enginetest.PostgreSQL(t)
	s := &stage{t: t, programs: map[int]*process{}, tenure: filepath.Join(t.TempDir(), "tenure")}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.tenure, "github.com/tenurelock/tenure/cmd/tenure").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.store, s.db = database(t, server)
	u, err := url.Parse(s.store)
	if err != nil {
		t.Fatal(err)
	}
	s.relay = enginetest.NewRelay(t, u.Host)
	u.Host = s.relay.Addr
	for range 4 {
		s.ports = append(s.ports, enginetest.FreePort(t))
	}
	for _, port := range s.ports[:3] {
		s.start(port, s.store)
	}
	port := enginetest.FreePort(t)
	start(t, exec.Command(s.tenure, "exporter", "--store", u.String(), "--leader", "leader", "--prefix", "", "--refresh", "500ms", "--listen", fmt.Sprintf("127.0.0.1:%d", port)))
	s.monitor = startPrometheus(t, map[string][]int{"app": s.ports, "locks": {port}})
	return s
}

func database(t *testing.T, server string) (string, *pgx.Conn) {
	t.Helper()
	store := enginetest.Database(t, server)
	db, err := pgx.Connect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	if err := pgstore.CreateTable(t.Context(), db, ""); err != nil {
		t.Fatal(err)
	}
	return store, db
}

// start starts a program that campaigns. It ends if this process does.
func (s *stage) start(port int, store string) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderStore+"="+store, fmt.Sprintf("%s=%d", holderPort, port))
	if _, err := cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	s.programs[port] = start(s.t, cmd)
}

// leader returns the port of the program that leads.
func (s *stage) leader() int {
	s.t.Helper()
	port := 0
	until(s.t, "one of the programs leads", func() bool {
		found := s.instant(`leader_election_master_status{job="app"} == 1`)
		if len(found) != 1 {
			return false
		}
		_, text, _ := strings.Cut(found[0].Metric["instance"], ":")
		port, _ = strconv.Atoi(text)
		return true
	})
	return port
}

// tell has a program do what nobody wants.
func (s *stage) tell(port int, what string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/%s", port, what), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
}

func (s *stage) stepDown() {
	s.t.Helper()
	if out, err := exec.CommandContext(s.t.Context(), s.tenure, "step-down", "leader", "--reason", "a test", "--store", s.store).CombinedOutput(); err != nil {
		s.t.Logf("%v\n%s", err, out) // the leader was just gone: there is another one
	}
}

func (s *stage) exec(statement string) {
	s.t.Helper()
	if _, err := s.db.Exec(s.t.Context(), statement); err != nil {
		s.t.Fatal(err)
	}
}

// pass waits that long for a Prometheus that scrapes meanwhile.
func (s *stage) pass(d time.Duration) {
	s.t.Helper()
	begun := time.Now()
	until(s.t, "time passes", func() bool { return time.Since(begun) > d })
}

// TestAlerts has a Prometheus run the rules on a group of real programs and tenure exporter,
// and brings about what each alert is for. Each fires once, for its reason alone, and all
// queries of the board have answers.
func TestAlerts(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	s := newStage(t)
	begun := time.Now()
	s.leader()
	until(t, "the exporter sees the leader", func() bool { return len(s.instant(`tenure_lock_held{name="leader"} == 1`)) == 1 })
	s.exec("CREATE TABLE backup AS TABLE tenure_records")
	until(t, "the leader knows its busy share", func() bool { return len(s.instant("tenure_busy_share")) == 1 })
	s.stepDown() // one change of the leader is no news
	s.leader()
	s.pass(15 * time.Second)
	if all := s.firings(begun); len(all) > 0 {
		t.Fatalf("alerts in healthy work: %v", all)
	}

	var running *process // a job
	var broken string    // the file by which it fails
	for _, phase := range []struct {
		alert       string
		harm, after func()
	}{
		{"TenureFlapping", func() {
			for range 9 {
				s.stepDown()
				s.leader()
			}
		}, nil},
		{"TenureTwoBelieve", func() {
			other, _ := database(t, enginetest.PostgreSQL(t))
			s.start(s.ports[3], other)
		}, func() { s.programs[s.ports[3]].end() }},
		{"TenureSlackBelowGrace", func() { s.tell(s.leader(), "late") }, nil},
		{"TenureStopTimeout", func() {
			s.tell(s.leader(), "deaf")
			go func() { // it does not get what it asks for
				_ = exec.CommandContext(t.Context(), s.tenure, "step-down", "leader", "--reason", "a test", "--store", s.store).Run()
			}()
		}, nil},
		{"TenureJobNotSucceeded", func() {
			broken = filepath.Join(t.TempDir(), "broken")
			running = start(t, exec.Command(s.tenure, "every", "-q", "--lease", "2s", "--store", s.store, "5s", "nightly", "--", "sh", "-c", "! test -e "+broken))
			until(t, "the job succeeds", func() bool { return len(s.instant(`tenure_once_last_status{name="nightly:every"} == 0`)) == 1 })
			s.pass(12 * time.Second) // two periods, and it succeeds in each
			if s.fires("TenureJobNotSucceeded") {
				t.Error("the alert fires for a job that succeeds")
			}
			if err := os.WriteFile(broken, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, func() {
			if err := os.Remove(broken); err != nil {
				t.Fatal(err)
			}
			until(t, "the job succeeds again", func() bool { return !s.fires("TenureJobNotSucceeded") })
			running.end()
			s.exec("DELETE FROM tenure_records WHERE key LIKE '%nightly:every%'")
		}},
		{"TenureStoreAway", nil, nil},
		{"TenureNobodyLeads", func() {
			for _, port := range s.ports[:3] {
				s.programs[port].end()
			}
		}, nil},
		{"TenureTokenFell", func() {
			s.exec("TRUNCATE tenure_records")
			s.exec("INSERT INTO tenure_records SELECT * FROM backup")
			for _, port := range s.ports[:3] {
				s.start(port, s.store)
			}
		}, func() { s.leader() }},
	} {
		from := time.Now()
		resume := func() {}
		if phase.harm == nil {
			resume = s.relay.Hold()
		} else {
			phase.harm()
		}
		until(t, phase.alert+" fires", func() bool { return s.fires(phase.alert) })
		t.Logf("%s fires %v after %s", phase.alert, time.Since(from).Round(time.Second), from.Format(time.TimeOnly))
		resume()
		if phase.after != nil {
			phase.after()
		}
		switch phase.alert {
		case "TenureNobodyLeads", "TenureTokenFell": // the next one, and the end, follow at once
		default:
			until(t, phase.alert+" ends", func() bool { return !s.fires(phase.alert) })
			s.leader()
		}
	}
	until(t, "somebody leads again", func() bool { return !s.fires("TenureNobodyLeads") })
	s.pass(5 * time.Second)

	all := s.firings(begun)
	for _, name := range rulePattern.FindAllStringSubmatch(read(t, "rules.yaml"), -1) {
		if n := len(all[name[1]]); n != 1 {
			t.Errorf("%s fired %d times, want once: %v", name[1], n, all[name[1]])
		}
		delete(all, name[1])
	}
	if len(all) > 0 {
		t.Errorf("alerts that no rule has: %v", all)
	}
	s.board(begun)
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// board runs all queries of the board, for all jobs, instances and locks.
func (s *stage) board(since time.Time) {
	s.t.Helper()
	everything := strings.NewReplacer("$__rate_interval", "15s", "$job", ".+", "$instance", ".+", "$name", ".+")
	d, err := board(read(s.t, "board.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for _, p := range panels(d) {
		for _, q := range queries(p) {
			n++
			found := s.over(everything.Replace(q.Expr), since)
			if len(found) == 0 {
				s.t.Errorf("panel %q: no answer to %s", text(p.Title), q.Expr)
			}
		}
	}
	variables := variableQueries(s.t)
	for _, v := range variables {
		m := labelValues.FindStringSubmatch(v)
		if m == nil {
			s.t.Fatalf("%q is no query of label values", v)
		}
		data, err := s.ask("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {everything.Replace(m[1])}})
		if err != nil || string(data) == "[]" {
			s.t.Errorf("%s: %s, error %v", v, data, err)
		}
	}
	if n < 20 || len(variables) != 3 {
		s.t.Errorf("%d queries, %d variables", n, len(variables))
	}
	s.t.Logf("%d queries of the board have answers", n)
}
