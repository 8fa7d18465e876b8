// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
)

// call makes one attempt of an operation. An error after which no byte of the
// request can have left the process is an *unsentError.
func call[In, Out any](ctx context.Context, s *Store, op func(context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in *In) (*Out, error) {
	sent := false
	out, err := op(ctx, in, func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		if s.connections.client != nil {
			o.HTTPClient = s.connections.client
		}
		o.HTTPClient = calmClient{o.HTTPClient}
		o.APIOptions = append(slices.Clip(o.APIOptions), func(stack *middleware.Stack) error {
			// The last step before the HTTP client: it is not reached without
			// credentials, an endpoint, or a signature.
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("TenureSent",
				func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
					sent = true
					return next.HandleDeserialize(ctx, in)
				}), middleware.After)
		})
	})
	if err != nil && !sent {
		return out, &unsentError{err}
	}
	s.connections.saw(err)
	return out, err
}

// unsentError is the error of a request that was never made.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// calmClient keeps the SDK from closing the body of a request whose answer has
// begun: net/http may still be reading the body's end; it would get an error
// and close the connection from which the answer is being read. So answers of
// more than a few kB are sometimes lost after the write was applied. See
// https://github.com/aws/aws-sdk-go-v2/issues/2737.
type calmClient struct{ dynamodb.HTTPClient }

func (c calmClient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = io.NopCloser(r.Body)
	}
	return c.HTTPClient.Do(r)
}
