// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
	"github.com/tenurelock/tenure/pgstore"
)

// servers are the engines that are servers, by the names that -engines takes. Each
// function makes a place for the data below dir; its error says that the program is
// not there. A further one is a line here, a case of replica.OpenStore, an engine of
// `make chaos`, and a word in docs/evidence/chaos.md.
var servers = map[string]func(dir string) (server, error){
	"dynoxide":  newDynoxide,
	"etcd":      newEtcd,
	"postgres":  newPostgres,
	"zookeeper": newZooKeeper,
}

// engineNames are all that -engines takes.
func engineNames() []string {
	return append([]string{fileEngine}, slices.Sorted(maps.Keys(servers))...)
}

// checkEngine returns an error unless there is the engine, and its program.
func checkEngine(name string) error {
	kind, ok := servers[name]
	switch {
	case name == fileEngine:
		return nil
	case !ok:
		return fmt.Errorf("engine %q is not known: there are %s", name, strings.Join(engineNames(), ", "))
	}
	s, err := kind("")
	if err == nil {
		_, err = os.Stat(s.program)
	}
	return err
}

// installed returns a file that scripts/engines has installed, by a pattern below its
// folder.
func installed(engine, pattern string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("this is no checkout: the engines are below one")
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, ".bin/engines", pattern))
	if err != nil || len(found) == 0 {
		return "", errors.Join(err, fmt.Errorf("%s is not installed: scripts/engines install %[1]s", engine))
	}
	return found[len(found)-1], nil
}

// connects says that the address takes connections.
func connects(_ context.Context, address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// newDynoxide is a server with DynamoDB's protocol.
func newDynoxide(dir string) (server, error) {
	program, err := installed("dynoxide", "dynoxide-*/node_modules/@dynoxide/*/dynoxide")
	return server{
		name: "dynoxide", program: program, versionFlag: "--version",
		command: func(port int) []string {
			return []string{program, "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--db-path", filepath.Join(dir, "dynoxide.db")}
		},
		ready: connects,
		begin: func(ctx context.Context, address string) error {
			return dynamostore.CreateTable(ctx, dynamo.Connect("http://"+address), replica.Table, nil)
		},
		url: func(address string) string { return "dynamodb:http://" + address },
	}, err
}

// newEtcd is a cluster of one member.
func newEtcd(dir string) (server, error) {
	program, err := installed("etcd", "etcd-*/etcd")
	if err != nil {
		return server{name: "etcd"}, err
	}
	peer, err := freePort()
	return server{
		name: "etcd", program: program, versionFlag: "--version",
		command: func(port int) []string {
			here, peers := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", peer)
			return []string{
				program, "--name", "one", "--data-dir", filepath.Join(dir, "etcd"), "--log-level", "error",
				"--listen-client-urls", here, "--advertise-client-urls", here,
				"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "one=" + peers,
			}
		},
		ready: func(ctx context.Context, address string) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			return says(answer.Body, `"true"`)
		},
		url: func(address string) string { return "etcd:http://" + address },
	}, err
}

// newZooKeeper is one server of ZooKeeper, which stands alone.
func newZooKeeper(dir string) (server, error) {
	jar, err := installed("zookeeper", "zookeeper-*/zookeeper-3*.jar")
	return server{
		name: "zookeeper", program: jar,
		version: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "zookeeper-"), ".jar"),
		command: func(port int) []string {
			config := filepath.Join(dir, "zoo.cfg")
			// Without the file the server says so, and ends.
			_ = os.WriteFile(config, fmt.Appendf(nil,
				"tickTime=500\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", filepath.Join(dir, "zookeeper"), port), 0o600)
			return []string{
				"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", filepath.Join(filepath.Dir(jar), "*"),
				"org.apache.zookeeper.server.ZooKeeperServerMain", config,
			}
		},
		ready: func(ctx context.Context, address string) error {
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			if _, err := io.WriteString(conn, "srvr"); err != nil {
				return err
			}
			return says(conn, "Mode: ")
		},
		url: func(address string) string { return "zookeeper:" + address },
	}, err
}

// newPostgres is one server of PostgreSQL, of the system's package. It refuses to be root,
// and its data are where its user can come.
func newPostgres(dir string) (server, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return server{name: "postgres"}, errors.Join(err, errors.New("postgres is not installed: run scripts/setup"))
	}
	program := found[len(found)-1]
	s := server{
		name: "postgres", program: program, versionFlag: "--version",
		begin: func(ctx context.Context, address string) error {
			pool, err := pgxpool.New(ctx, postgresURL(address))
			if err != nil {
				return err
			}
			defer pool.Close()
			return pgstore.CreateTable(ctx, pool, "")
		},
		ready: func(ctx context.Context, address string) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			conn, err := pgx.Connect(ctx, postgresURL(address))
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		},
		url: postgresURL,
	}
	if dir == "" {
		return s, nil
	}
	data, err := os.MkdirTemp("", "tenure-chaos-postgres-")
	if err != nil {
		return s, err
	}
	s.remove = func() error { return os.RemoveAll(data) }
	as := func(args ...string) []string { return args }
	if os.Geteuid() == 0 {
		own, err := user.Lookup("postgres")
		if err != nil {
			return s, errors.Join(err, s.remove())
		}
		uid, uidErr := strconv.Atoi(own.Uid)
		gid, gidErr := strconv.Atoi(own.Gid)
		if err := errors.Join(uidErr, gidErr, os.Chown(data, uid, gid)); err != nil {
			return s, errors.Join(err, s.remove())
		}
		as = func(args ...string) []string {
			return append([]string{"env", "--chdir=" + data, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
		}
	}
	made := as(filepath.Join(filepath.Dir(program), "initdb"), "-D", data, "-A", "trust", "-U", "tenure", "--no-locale", "-E", "UTF8", "--no-sync")
	if out, err := exec.Command(made[0], made[1:]...).CombinedOutput(); err != nil {
		return s, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), s.remove())
	}
	s.command = func(port int) []string {
		return as(program, "-D", data, "-p", fmt.Sprint(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "log_min_messages=panic")
	}
	return s, nil
}

func postgresURL(address string) string {
	return "postgres://tenure@" + address + "/postgres?sslmode=disable"
}

// says returns an error unless the answer has the text.
func says(answer io.Reader, text string) error {
	all, err := io.ReadAll(answer)
	if err == nil && !strings.Contains(string(all), text) {
		err = fmt.Errorf("it says %.200q", all)
	}
	return err
}
