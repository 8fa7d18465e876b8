// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// connections keeps the idle connections of a store fresh. The network between a
// program and DynamoDB, such as a NAT, may drop connections silently. Each call
// on such a connection waits for its whole timeout, and the pool has ten: that is
// longer than a lease, although new connections work.
type connections struct {
	// client makes the calls; nil for the client of the SDK's options.
	client dynamodb.HTTPClient
	// drop closes the idle connections; nil if that is not possible.
	drop func()
	// born and dropped say when that was done last.
	born    time.Time
	dropped atomic.Int64 // nanoseconds after born, 0 for never
}

// dropPause is the least time between two droppings: where new connections do not
// answer either, there is no use in more.
const dropPause = time.Second

// newConnections returns the connections of a store on the client. An HTTP client
// that the SDK has built is replaced by a client with the same settings, whose
// connections are the store's alone. A client of another type is used as it is.
func newConnections(client *dynamodb.Client) *connections {
	c := &connections{born: time.Now()}
	switch theirs := client.Options().HTTPClient.(type) {
	case *awshttp.BuildableClient:
		own := &http.Client{
			Transport: theirs.GetTransport(), Timeout: theirs.GetTimeout(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // DynamoDB does not redirect
		}
		c.client, c.drop = own, own.CloseIdleConnections
	case interface{ CloseIdleConnections() }:
		c.drop = theirs.CloseIdleConnections
	}
	return c
}

// saw records how a sent call ended. After a call without an answer it closes
// the idle connections, and leaves alone those that carry another call.
func (c *connections) saw(err error) {
	if c.drop == nil || !silent(err) {
		return
	}
	now, last := int64(time.Since(c.born))+1, c.dropped.Load()
	if last == 0 || now-last >= int64(dropPause) {
		if c.dropped.CompareAndSwap(last, now) {
			c.drop()
		}
	}
}

// close ends the connections that are the store's own, once they are idle.
func (c *connections) close() {
	if c.client != nil {
		c.drop()
	}
}

// silent reports whether a call that was sent got no answer, for another reason
// than that its caller gave it up.
func silent(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	answer := (*smithyhttp.ResponseError)(nil)
	return !errors.As(err, &answer) || answer.Response == nil || answer.Response.Response == nil || answer.HTTPStatusCode() == 0
}
