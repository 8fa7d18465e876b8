// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurectrl_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tenurelock/tenure"
	tenurectrl "github.com/tenurelock/tenure/adapters/controllerruntime"
	"github.com/tenurelock/tenure/memstore"
)

// That of the cluster; and what this program adds to a manager.
var (
	config = &rest.Config{}
	setup  = func(mgr ctrl.Manager, run func(context.Context) error) error { return mgr.Add(runnable(run)) }
)

type runnable func(context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }

func ExampleRunManager() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := tenure.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	election := client.Election("operator", nil)
	err = tenurectrl.RunManager(ctx, election, config, options(), func(mgr ctrl.Manager, lease *tenure.Lease) error {
		// ctrl.NewControllerManagedBy(mgr)... at each election won
		return setup(mgr, func(ctx context.Context) error {
			fmt.Println("leads with token", lease.Token())
			stop()
			<-ctx.Done() // ends at the deadline of the lease
			return nil
		})
	})
	fmt.Println("has ended:", err)
	// Output:
	// leads with token 1
	// has ended: <nil>
}
