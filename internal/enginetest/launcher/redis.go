// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Redis returns a server of Redis with its data in a folder. Settings are names and values of its configuration;
// without them it keeps its data in memory alone.
func Redis(dir string, port int, settings ...string) (Server, error) {
	program, err := SystemProgram("redis-server")
	args := []string{program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", ""}
	return Server{
		Args: append(append(args, "--repl-diskless-sync-delay", "0"), settings...), Dir: dir,
		Ready: func() error { return RedisReady(fmt.Sprintf("127.0.0.1:%d", port)) },
	}, err
}

// systemRedis says whether it is installed.
func systemRedis(context.Context, Kind, string) error {
	_, err := SystemProgram("redis-server")
	return err
}

// RedisReady says that the server at HOST:PORT answers, and has loaded its data.
func RedisReady(at string) error {
	conn, err := net.DialTimeout("tcp", at, soon)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	_, _ = io.WriteString(conn, "PING\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") {
		err = fmt.Errorf("it answers %q", line)
	}
	return err
}
