// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package ready_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/ready"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
	election := client.Election("scheduler", nil)
	var server *httptest.Server
	lead := func(context.Context, *tenure.Lease) error {
		show(server.URL) // a load balancer asks
		stop()
		return nil
	}

	probe := ready.New(nil)
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", probe)

	server = httptest.NewServer(mux)
	defer server.Close()
	show(server.URL)

	if err := election.Run(ctx, probe.Lead(lead)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 503 Service Unavailable
	// 200 OK
}

func show(url string) {
	answer, err := http.Get(url + "/readyz")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	fmt.Println(answer.Status)
}
