// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/k8sstore"
)

// In a pod this finds its service account and namespace, and elsewhere what kubectl uses.
func Example() {
	ctx := context.Background()
	config, namespace, err := k8sstore.Config("", "")
	if err != nil {
		log.Fatal(err)
	}
	store, err := k8sstore.Open(ctx, config, namespace, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
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

// A controller that moves from client-go's elector keeps its Lease: old and new replicas
// respect each other while the Deployment rolls.
func Example_sharedLease() {
	ctx := context.Background()
	config, namespace, err := k8sstore.Config("", "")
	if err != nil {
		log.Fatal(err)
	}
	store, err := k8sstore.Open(ctx, config, namespace, &k8sstore.Options{SharedLease: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client, err := tenure.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	lead := func(ctx context.Context, lease *tenure.Lease) error {
		<-ctx.Done() // the controllers run here; lead returns when they have stopped
		return nil
	}
	if err := client.Election("80807133.example.com", nil).Run(ctx, lead); err != nil {
		log.Fatal(err)
	}
}

// The Role that a program needs, for kubectl apply.
func ExamplePolicy() {
	fmt.Print(k8sstore.Policy("jobs", "tenure"))
	// Output:
	// apiVersion: rbac.authorization.k8s.io/v1
	// kind: Role
	// metadata:
	//   name: "tenure"
	//   namespace: "jobs"
	// rules:
	// - apiGroups: ["coordination.k8s.io"]
	//   resources: ["leases"]
	//   verbs: ["get", "list", "watch", "create", "patch", "delete"]
	// - apiGroups: [""]
	//   resources: ["configmaps"]
	//   verbs: ["get", "list", "create", "delete"]
}
