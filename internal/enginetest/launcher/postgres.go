// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const postgresURL = "postgres://tenure@127.0.0.1:%d/postgres?sslmode=disable"

// PostgresUser is as whom PostgreSQL and PgBouncer run, which refuse to be root.
const PostgresUser = "postgres"

// SystemProgram returns a program that scripts/setup installs: the first existing file, or
// the program in PATH.
func SystemProgram(name string, files ...string) (string, error) {
	for _, file := range append(files, name) {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	return "", &MissingError{name, "scripts/setup installs it"}
}

// PostgresProgram returns a program of PostgreSQL, of the newest installed release.
func PostgresProgram(name string) (string, error) {
	release := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 9.6 and the like are too old
		return n
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return release(b) - release(a) })
	return SystemProgram(name, found...)
}

// Own has the user of PostgreSQL own a folder, if this process is root.
func Own(folder string) error { return give(folder, PostgresUser) }

// PostgreSQL returns a server of PostgreSQL, whose user is tenure, without a password.
// Settings are lines of its configuration. Nothing outlives a power loss without fsync=on.
func PostgreSQL(data string, port int, settings ...string) (Server, error) {
	program, err := PostgresProgram("postgres")
	args := []string{program, "-D", data, "-p", strconv.Itoa(port)}
	for _, setting := range append([]string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "full_page_writes=off",
	}, settings...) {
		args = append(args, "-c", setting) // the last one of a name is the one
	}
	return Server{
		Args: args, Dir: data, User: PostgresUser,
		Ready: func() error { return PostgresReady(fmt.Sprintf(postgresURL, port)) },
		Stop:  syscall.SIGINT, // SIGTERM would have it wait for its clients
	}, err
}

// PostgresReady says that the server of a URL answers.
func PostgresReady(url string) error {
	ctx, stop := context.WithTimeout(context.Background(), soon)
	defer stop()
	_, err := PSQL(ctx, url, "SELECT 1")
	return err
}

// InitPostgreSQL makes the data of a server in a folder, which is empty and the user's own.
func InitPostgreSQL(data string) error {
	program, err := PostgresProgram("initdb")
	if err != nil {
		return err
	}
	return Server{
		Args: []string{program, "-D", data, "-A", "trust", "-U", "tenure", "--no-locale", "-E", "UTF8", "--no-sync"},
		Dir:  data, User: PostgresUser,
	}.Run()
}

// FollowPostgreSQL creates the data of a standby of a server, in an empty folder of the user. The
// standby has the given name. It fetches the log at the end: a stream would end with the server's
// wal_sender_timeout, which tests make short, on a machine that is busy for as long.
func FollowPostgreSQL(data, url, name string) error {
	program, err := PostgresProgram("pg_basebackup")
	if err != nil {
		return err
	}
	return Server{Dir: data, User: PostgresUser, Args: []string{
		program, "-d", url + "&application_name=" + name, "-D", data,
		"--write-recovery-conf", "--wal-method=fetch", "--checkpoint=fast", "--no-sync",
	}}.Run()
}

// RewindPostgreSQL makes the data of a stopped server those of a standby of the server of a URL.
func RewindPostgreSQL(data, url, name string) error {
	program, err := PostgresProgram("pg_rewind")
	if err != nil {
		return err
	}
	return Server{Dir: data, User: PostgresUser, Args: []string{
		program, "--target-pgdata", data, "--source-server", url + "&application_name=" + name,
		"--write-recovery-conf", "--no-sync",
	}}.Run()
}

func onePostgreSQL(dir string, port int) (Server, error) {
	if err := Own(dir); err != nil {
		return Server{}, err
	}
	if err := InitPostgreSQL(dir); err != nil {
		return Server{}, err
	}
	return PostgreSQL(dir, port, "max_connections=400")
}

// PSQL runs statements in the database of a URL, and returns the values, a line for each
// row.
func PSQL(ctx context.Context, database, statements string) (string, error) {
	program, err := PostgresProgram("psql")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, "-qAtX", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", statements, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
