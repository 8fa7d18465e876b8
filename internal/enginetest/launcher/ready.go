// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const soon = 5 * time.Second // for one answer

// ask returns what a server of this machine answers to a request: a POST if there is something to
// send.
func ask(url, body string, header map[string]string) (string, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	anyone := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is a server of this machine, and of the tests
	client := http.Client{Timeout: soon, Transport: &http.Transport{TLSClientConfig: anyone, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s: %s", request.URL.Path, answer.Status, text)
	}
	return string(text), err
}

// connects says that a server listens.
func connects(at string) error {
	conn, err := net.DialTimeout("tcp", at, soon)
	if err != nil {
		return err
	}
	return conn.Close()
}

// EtcdReady says that a member of etcd has a leader, and can write.
func EtcdReady(url string) error {
	text, err := ask(url+"/health", "", nil)
	if err == nil && !strings.Contains(text, `"true"`) {
		err = fmt.Errorf("it answers %q", text)
	}
	return err
}

// ZooKeeperMode returns what the server at an address is: leader, follower or standalone.
func ZooKeeperMode(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, soon)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	_, _ = io.WriteString(conn, "srvr")
	text, _ := io.ReadAll(conn)
	_, mode, _ := strings.Cut(string(text), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	if mode == "" {
		return "", errors.New("it has no mode yet")
	}
	return mode, nil
}

// AskKubernetes makes a request as a user, a POST if there is something to send, and
// returns the answer.
func AskKubernetes(addr, user, path, body string) (string, error) {
	return ask("https://"+addr+path, body, map[string]string{
		"Authorization": "Bearer " + user,
		"Content-Type":  "application/yaml", // JSON is some
		"Accept":        "application/json, */*",
	})
}
