// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore"
)

// examineZooKeeper returns what the doctor says of a store on these hosts.
func examineZooKeeper(t *testing.T, o zkstore.Options, lease time.Duration, hosts ...string) (lines string, bad bool, err error) {
	t.Helper()
	return examine(t, Patient{
		Engine: ZooKeeper{Hosts: hosts, Options: func() (zkstore.Options, error) { return o, nil }},
		Open: func() (driver.Store, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := zkstore.Open(ctx, hosts, &o)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Options: options(t, tenure.Options{LeaseDuration: lease}),
	})
}

// An ensemble of three, of which one server does not run.
func TestZooKeeperEnsemble(t *testing.T) {
	servers := enginetest.StartZooKeeper(t, 3, "forceSync=no")
	var hosts []string
	for _, z := range servers {
		hosts = append(hosts, z.Addr)
	}
	o := zkstore.Options{Root: "/locks", User: "app", Password: "secret", Session: 4 * time.Second}
	lines, bad, err := examineZooKeeper(t, o, time.Minute, hosts...)
	if bad || err != nil || strings.Contains(lines, "secret") {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	for line := range strings.Lines(lines) { // the machine's clock is not what is tested
		if strings.HasPrefix(line, "warn ") && !strings.HasPrefix(line, "warn clock") && !strings.HasPrefix(line, "warn latency") {
			t.Error(line)
		}
	}
	wantLines(t, lines, ", leader;", ", follower;", "ok members: 3 voting servers", "ok session: a server that hangs is left for another one after 2.67s", "/locks is not there yet, and can be made", "records are made for the user alone", "a request of 1 MB is taken", "a waiter hears of a release after")

	servers[0].Kill()
	lines, bad, err = examineZooKeeper(t, o, time.Minute, hosts...)
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "warn server: "+hosts[0]+" does not answer", "nodes can be made below /locks")

	servers[1].Kill()
	text := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(text, "serves no requests") && time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		f, _ := ZooKeeper{}.server(t.Context(), hosts[2], zkstore.Options{})
		text = fmt.Sprint(f)
	}
	if !strings.Contains(text, "finds no majority") {
		t.Errorf("without a majority: %s", text)
	}
}

// A server that takes no long request, says nothing of itself, and whose records are
// anyone's.
func TestZooKeeperThatIsOpen(t *testing.T) {
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djute.maxbuffer=200000")
	address := enginetest.StartZooKeeper(t, 1, "forceSync=no")[0].Addr
	lines, bad, err := examineZooKeeper(t, zkstore.Options{Root: "/a/locks", Session: 20 * time.Second}, 5*time.Second, address)
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "standalone; it stands alone", "warn access: anyone who reaches the servers may change the records", "warn size: a request of 1 MB ends the connection", "warn session: ")

	// The root was there before the user.
	o := zkstore.Options{Root: "/a/locks", User: "app", Password: "secret"}
	lines, bad, err = examineZooKeeper(t, o, time.Minute, address)
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "warn access: anyone who reaches the servers may change /a/locks: world:anyone; addauth")

	// Of another user.
	o.Root = "/theirs"
	if lines, bad, err = examineZooKeeper(t, o, time.Minute, address); bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	o.Password = "wrong"
	lines, bad, err = examineZooKeeper(t, o, time.Minute, address)
	if !bad || err == nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, "bad rights: nothing can be made below /theirs: ", "bad store: cannot be opened")
	o.Root = "/theirs/mine"
	lines, _, _ = examineZooKeeper(t, o, time.Minute, address)
	wantLines(t, lines, "bad rights: /theirs/mine is not there, and cannot be made: ")
}

// What stands before a server may pass on no question about it.
func TestZooKeeperThatIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = io.ReadFull(conn, make([]byte, len("srvr")))
			_ = conn.Close()
		}
	}()
	f, answers := ZooKeeper{}.server(t.Context(), l.Addr().String(), zkstore.Options{})
	if !answers || f.Level != OK || !strings.Contains(f.Finding, "does not say what it is") {
		t.Errorf("%v, %v", f, answers)
	}
}

func TestZooKeeperJudgements(t *testing.T) {
	for version, older := range map[string]bool{"3.4.14": true, "3.5.10": true, "3.6.0": false, "3.10.1": false, "4.0.0": false, "": false, "what": false} {
		if olderZooKeeper(version) != older {
			t.Errorf("version %q: want %v", version, older)
		}
	}
	password := zkstore.Options{User: "app", Password: "secret"}
	for _, c := range []struct {
		host  string
		level Level
		says  string
	}{
		{"127.0.0.1:2181", OK, "not encrypted"},
		{"localhost:2181", OK, "not encrypted"},
		{"10.0.0.1:2181", Warn, "the password goes over it"},
	} {
		if f := (ZooKeeper{Hosts: []string{"[::1]:2181", c.host}}).encryption(password); f.Level != c.level || !strings.Contains(f.Finding, c.says) || strings.Contains(fmt.Sprint(f), "secret") {
			t.Errorf("%s: %v", c.host, f)
		}
	}
}
