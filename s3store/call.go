// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
)

// call makes one attempt of an operation. An error after which no byte of the request can
// have left the process is an *unsentError.
func call[In, Out any](ctx context.Context, o *objects, op func(context.Context, *In, ...func(*s3.Options)) (*Out, error), in *In) (*Out, error) {
	sent := false
	// The last step before the client for HTTP: it is not reached without credentials, an
	// endpoint, or a signature.
	sending := middleware.DeserializeMiddlewareFunc("TenureSent",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			sent = true
			return next.HandleDeserialize(ctx, in)
		})
	out, err := op(ctx, in, func(options *s3.Options) {
		options.Retryer = aws.NopRetryer{}
		// The signature covers the body. Other servers than S3 refuse the trailers that
		// checksums come in.
		options.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		options.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		options.HTTPClient = wire{o.http}
		options.APIOptions = append(slices.Clip(options.APIOptions), func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(sending, middleware.After)
		})
	})
	switch {
	case err != nil && !sent:
		return out, &unsentError{err}
	case err != nil && statusOf(err) == 0 && ctx.Err() != context.Canceled:
		o.unheard()
	}
	return out, err
}

// unsentError is the error of a request that was never made.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// wire is an HTTP client to whose requests the SDK does not close the body: net/http may
// still read it when the answer has begun, and would then close the connection under the
// answer. See https://github.com/aws/aws-sdk-go-v2/issues/2737.
type wire struct{ s3.HTTPClient }

func (w wire) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(r.Body)
	}
	return w.HTTPClient.Do(r)
}

// connections are those of a store. What lies between a program and its bucket may forget a
// connection without a word: each call that takes one such out of the pool waits for all of
// its time.
type connections struct {
	http s3.HTTPClient
	drop func() // closes those that are idle

	mu   *sync.Mutex
	last *time.Time // of such a closing
}

// dropPause is the least time between two closings: where new connections get no answer
// either, there is no use in more.
const dropPause = time.Second

func connectionsOf(client *s3.Client) connections {
	c := connections{http: client.Options().HTTPClient, drop: func() {}, mu: &sync.Mutex{}, last: &time.Time{}}
	switch theirs := c.http.(type) {
	case *awshttp.BuildableClient:
		own := &http.Client{
			Transport: theirs.GetTransport(), Timeout: theirs.GetTimeout(),
			// A bucket elsewhere is an error: to follow would be a second request.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		c.http, c.drop = own, own.CloseIdleConnections
	case interface{ CloseIdleConnections() }:
		c.drop = theirs.CloseIdleConnections
	}
	return c
}

// unheard is called after a request that got no answer.
func (c connections) unheard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.last.IsZero() || now.Sub(*c.last) >= dropPause {
		*c.last = now
		c.drop()
	}
}
