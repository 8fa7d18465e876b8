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

// answer returns what a server of this machine answers to a request.
func answer(request *http.Request) (string, error) {
	anyone := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is a server of this machine, and of the tests
	transport := &http.Transport{TLSClientConfig: anyone}
	defer transport.CloseIdleConnections()
	client := http.Client{Timeout: 5 * time.Second, Transport: transport}
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

func serves(url string) error {
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err == nil {
		_, err = answer(request)
	}
	return err
}

// connects says that a server listens.
func connects(port int) error {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 2*time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// listsTables says that an emulator of DynamoDB does. The signature is in form alone.
func listsTables(port int) error {
	request, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d", port), strings.NewReader("{}"))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	request.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	request.Header.Set("X-Amz-Date", "20260101T000000Z")
	request.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20260101/local/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	return contains(request, "TableNames")
}

// EtcdReady says that a member of etcd has a leader, and can write.
func EtcdReady(url string) error {
	request, err := http.NewRequest(http.MethodGet, url+"/health", http.NoBody)
	if err != nil {
		return err
	}
	return contains(request, `"true"`)
}

func contains(request *http.Request, want string) error {
	text, err := answer(request)
	if err == nil && !strings.Contains(text, want) {
		err = fmt.Errorf("it answers %q", text)
	}
	return err
}

// ZooKeeperMode returns what the server at an address is: leader, follower or standalone.
func ZooKeeperMode(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
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
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequest(method, "https://"+addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+user)
	request.Header.Set("Content-Type", "application/yaml") // JSON is some
	request.Header.Set("Accept", "application/json, */*")
	return answer(request)
}
