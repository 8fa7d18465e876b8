// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

func Example() {
	ctx := context.Background()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	principals, err := server.ParsePrincipals("ci secret-of-ci-0123456789 hold:jobs/")
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.New(client, server.Options{Principals: principals})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	h := s.HTTPServer()
	served := make(chan error, 1)
	go func() { served <- h.Serve(listener) }()

	body := strings.NewReader(`{"name": "jobs/nightly", "owner": "web-7"}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String()+"/v1/acquire", body)
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer secret-of-ci-0123456789")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status, strings.Contains(string(text), `"token":1`))

	for _, end := range []func(context.Context) error{s.Shutdown, h.Shutdown, client.Close} {
		if err := end(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(<-served)
	// Output:
	// 200 OK true
	// http: Server closed
}
