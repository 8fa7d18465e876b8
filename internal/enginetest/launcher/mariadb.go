// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// MariaDB returns a server of MariaDB, with the data of [InitMariaDB] in a folder. Its user root may do everything, and has no
// password. Settings are arguments; without them nothing outlives a power loss, and there is no binary log.
func MariaDB(data string, port int, settings ...string) (Server, error) {
	program, err := SystemProgram("mariadbd", "/usr/sbin/mariadbd")
	args := []string{
		program, "--no-defaults", "--datadir=" + data, tmpdir(data), "--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(data, "socket"), "--pid-file=" + filepath.Join(data, "pid"), "--skip-name-resolve",
		"--innodb-buffer-pool-size=32M", "--innodb-flush-method=nosync", "--innodb-log-file-size=8M", "--max-connections=400",
	}
	return Server{
		Args: append(append(args, asUser()...), settings...), Dir: data,
		Ready: func() error { return MariaDBReady(fmt.Sprintf("127.0.0.1:%d", port)) },
	}, err
}

// tmpdir keeps temporary tables beside the data, since a server deletes those of others when it
// starts: in one folder two servers that start at a time would break each other.
func tmpdir(data string) string { return "--tmpdir=" + data }

// asUser allows root, as whom the tests run.
func asUser() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// InitMariaDB makes the data of a server in a folder, which is empty.
func InitMariaDB(data string) error {
	program, err := SystemProgram("mariadb-install-db")
	if err != nil {
		return err
	}
	return Server{Dir: data, Args: append([]string{
		program, "--no-defaults", "--datadir=" + data, tmpdir(data), "--auth-root-authentication-method=normal", "--skip-test-db",
		"--skip-name-resolve", "--innodb-flush-method=nosync", "--innodb-log-file-size=8M",
	}, asUser()...)}.Run()
}

func oneMariaDB(dir string, port int) (Server, error) {
	if err := InitMariaDB(dir); err != nil {
		return Server{}, err
	}
	return MariaDB(dir, port)
}

// systemMariaDB says whether it is installed.
func systemMariaDB(context.Context, Kind, string) error {
	_, err := SystemProgram("mariadbd", "/usr/sbin/mariadbd")
	return err
}

// MariaDBReady says that the server at HOST:PORT greets its clients.
func MariaDBReady(at string) error {
	conn, err := net.DialTimeout("tcp", at, soon)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	const behindHeader, greets = 4, 10 // the version of the protocol
	in := bufio.NewReader(conn)
	if _, err := in.Discard(behindHeader); err != nil {
		return err
	}
	if b, err := in.ReadByte(); err != nil || b != greets {
		return errors.Join(errors.New("it does not greet"), err)
	}
	return nil
}
