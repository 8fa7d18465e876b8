// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/azblobstore"
)

// Each process has a client of its own. The credential is from package azidentity, as for
// every other service. The store closes connections of the client that the network may have
// dropped. A lease of a minute costs a quarter of the default lease of 15 s.
func Example() {
	ctx := context.Background()
	var credential azcore.TokenCredential // of azidentity.NewDefaultAzureCredential(nil)

	web := &http.Client{}
	blobs, err := container.NewClient("https://ACCOUNT.blob.core.windows.net/my-container", credential, &container.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: web},
	})
	if err != nil {
		log.Fatal(err)
	}
	store, err := azblobstore.Open(ctx, blobs, &azblobstore.Options{CloseIdleConnections: web.CloseIdleConnections})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: time.Minute, RefreshPeriod: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenure.Lease) error {
		// One process at a time is here. ctx ends when it must stop.
		fmt.Println("writing the report under token", lease.Token())
		return lease.Check()
	})
	if err != nil {
		log.Fatal(err)
	}
}
