// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestConnectionsThatGoDark has ten idle connections forgotten by what lies
// between. Each costs a request timeout, and ten of them more than the lease, if
// they are tried one after the other.
func TestConnectionsThatGoDark(t *testing.T) {
	const lease, pooled = 3 * time.Second, 10
	for name, client := range map[string]dynamodb.HTTPClient{
		"TheSDKsOwn": nil,
		"HTTPClient": &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pooled}},
	} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.FullDynamoDB(t)
			table := newTable(t, e, nil)
			way := enginetest.NewRelay(t, strings.TrimPrefix(e.URL, "http://"))
			endpoint := "http://" + way.Addr
			store, err := New(dynamodb.New(dynamodb.Options{
				BaseEndpoint: &endpoint, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), HTTPClient: client,
			}), table, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			c := newClient(t, store, tenure.Options{LeaseDuration: lease})
			// A burst of acquires before is enough: the pool has ten connections then.
			resume := way.Hold()
			var all sync.WaitGroup
			leases := make([]*tenure.Lease, pooled)
			for i := range pooled {
				all.Go(func() {
					var err error
					if leases[i], err = c.Acquire(t.Context(), fmt.Sprint("lock-", i), nil); err != nil {
						t.Error(err)
					}
				})
			}
			for way.Connections() < pooled {
				runtime.Gosched()
			}
			resume()
			if all.Wait(); t.Failed() {
				return
			}
			for _, l := range leases[1:] {
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			n := way.Connections()
			way.Forget()
			select {
			case <-leases[0].Context().Done():
				t.Errorf("after %d connections went dark the lease was lost: %v", n, context.Cause(leases[0].Context()))
			case <-time.After(2 * lease):
				if err := leases[0].Release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
}
