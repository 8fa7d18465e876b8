// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"github.com/tenurelock/tenure/driver/objectmap"
)

// call makes one attempt of an operation. An error after which no byte of the request can
// have left the process is an *unsentError.
func call[In, Out any](ctx context.Context, o *objects, op func(context.Context, *In, ...func(*s3.Options)) (*Out, error), in *In) (*Out, error) {
	sent := false
	// The last step before the HTTP client: it is not reached without credentials, an
	// endpoint, or a signature.
	sending := middleware.DeserializeMiddlewareFunc("TenureSent",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			sent = true
			return next.HandleDeserialize(ctx, in)
		})
	out, err := op(ctx, in, func(options *s3.Options) {
		options.Retryer = aws.NopRetryer{}
		// The signature covers the body, and a write has its checksum as a header: see Put.
		// Other servers than S3 refuse the trailers that the SDK would send it in.
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
		o.Unheard()
	}
	return out, err
}

// unsentError is the error of a request that was never made.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// wire is an HTTP client that keeps the SDK from closing the body of a request: net/http
// may still read it when the answer has begun, and would then close the connection under
// the answer. See https://github.com/aws/aws-sdk-go-v2/issues/2737.
type wire struct{ s3.HTTPClient }

func (w wire) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(r.Body)
	}
	return w.HTTPClient.Do(r)
}

// connections are the connections of a store.
type connections struct {
	http s3.HTTPClient
	*objectmap.Idle
}

func connectionsOf(client *s3.Client) connections {
	switch theirs := client.Options().HTTPClient.(type) {
	case *awshttp.BuildableClient:
		own := &http.Client{
			Transport: theirs.GetTransport(), Timeout: theirs.GetTimeout(),
			// A bucket elsewhere is an error: to follow would be a second request.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		return connections{own, objectmap.NewIdle(own.CloseIdleConnections)}
	case interface {
		s3.HTTPClient
		CloseIdleConnections()
	}:
		return connections{theirs, objectmap.NewIdle(theirs.CloseIdleConnections)}
	default:
		return connections{theirs, objectmap.NewIdle(nil)}
	}
}
