// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurecertmagic_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/tenurelock/tenure"
	tenurecertmagic "github.com/tenurelock/tenure/adapters/certmagic"
	"github.com/tenurelock/tenure/memstore"
)

// Certificates in files, as before, and locks in a store that has no clock.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	storage := tenurecertmagic.Wrap(&certmagic.FileStorage{Path: dir}, client, nil)
	certmagic.Default.Storage = storage
	defer func() { certmagic.Default.Storage = nil }()

	config := certmagic.NewDefault()
	acme := certmagic.NewACMEIssuer(config, certmagic.DefaultACME)
	config.Issuers = []certmagic.Issuer{storage.Issuer(acme)} // orders end with the lease
	// config.ManageAsync(ctx, []string{"example.com"}) would order certificates now.

	if err := config.Storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	lease, err := storage.Lease("issue_cert_example.com")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Name(), "token", lease.Token())
	if err := config.Storage.Unlock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// certmagic/issue_cert_example.com token 1
}
