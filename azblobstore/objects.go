// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
)

// maxBody is the longest body in bytes that is read: more than any record has.
const maxBody = 16 << 20

// contentType is what a browser shows as text.
const contentType = "application/json"

// objects are the objects of a container, for package objectmap.
type objects struct {
	client          *container.Client
	host, container string
	*objectmap.Idle
}

// call makes one attempt of an operation.
func call[T any](ctx context.Context, o *objects, op func(context.Context) (T, error)) (out T, err error) {
	if err := ctx.Err(); err != nil {
		return out, &unsentError{err}
	}
	out, err = op(policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})) // 0 is three
	if err != nil && o.statusOf(err) == 0 && ctx.Err() != context.Canceled {
		o.Unheard()
	}
	return out, err
}

// Get is a Get Blob, which the primary location answers strongly.
func (o *objects) Get(ctx context.Context, name string) (body []byte, tag string, err error) {
	out, err := call(ctx, o, func(ctx context.Context) (blob.DownloadStreamResponse, error) {
		out, err := o.client.NewBlobClient(blobOf(name)).DownloadStream(ctx, nil)
		if err == nil {
			body, err = io.ReadAll(io.LimitReader(out.Body, maxBody+1))
			err = errors.Join(err, out.Body.Close())
		}
		return out, err
	})
	switch {
	case o.codeOf(err) == bloberror.BlobNotFound:
		return nil, "", driver.ErrNotFound
	case err != nil:
		return nil, "", o.fault(ctx, err)
	case len(body) > maxBody:
		return nil, "", fmt.Errorf("%s: blob %q has more than %d bytes: it is not a record", o.place(), name, maxBody)
	}
	return body, tagOf(out.ETag), nil
}

// Put is a Put Blob under If-Match, or under If-None-Match.
func (o *objects) Put(ctx context.Context, name string, text []byte, tag string) (newTag string, err error) {
	body := newBody(text)
	out, err := call(ctx, o, func(ctx context.Context) (blockblob.UploadResponse, error) {
		return o.client.NewBlockBlobClient(blobOf(name)).Upload(ctx, body, &blockblob.UploadOptions{
			HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: to.Ptr(contentType)},
			AccessConditions: conditions(tag, azcore.ETagAny),
		})
	})
	if err != nil && o.statusOf(err) == 0 && body.seal() {
		err = &unsentError{err}
	}
	if err != nil {
		return "", o.writeFault(ctx, err, tag != "")
	}
	return tagOf(out.ETag), nil
}

// Delete is a Delete Blob, under If-Match if there is a tag.
func (o *objects) Delete(ctx context.Context, name, tag string) error {
	_, err := call(ctx, o, func(ctx context.Context) (blob.DeleteResponse, error) {
		return o.client.NewBlobClient(blobOf(name)).Delete(ctx, &blob.DeleteOptions{AccessConditions: conditions(tag, "")})
	})
	if err == nil || o.codeOf(err) == bloberror.BlobNotFound && tag == "" {
		return nil
	}
	return o.writeFault(ctx, err, tag != "")
}

// Names is a List Blobs, which shows 5,000 names at most. In an account with folders it shows
// them as well, though they are no objects.
func (o *objects) Names(ctx context.Context, prefix, cursor string) (names []string, next string, err error) {
	options := &container.ListBlobsFlatOptions{Prefix: to.Ptr(strings.TrimRight(prefix, "."))}
	if cursor != "" {
		options.Marker = &cursor
	}
	page, err := call(ctx, o, o.client.NewListBlobsFlatPager(options).NextPage)
	if err != nil {
		return nil, "", o.fault(ctx, err)
	}
	if page.Segment != nil {
		for _, item := range page.Segment.BlobItems {
			folder := item.Properties != nil && item.Properties.ResourceType != nil && *item.Properties.ResourceType == "directory"
			if item.Name == nil || folder {
				continue
			}
			if name := nameOf(*item.Name); strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	if page.NextMarker != nil {
		next = *page.NextMarker
	}
	return names, next, nil
}

// conditions are If-Match with a tag, or If-None-Match without one.
func conditions(tag string, none azcore.ETag) *blob.AccessConditions {
	of := &blob.ModifiedAccessConditions{}
	if tag != "" {
		of.IfMatch = to.Ptr(azcore.ETag(tag))
	} else if none != "" {
		of.IfNoneMatch = &none
	}
	return &blob.AccessConditions{ModifiedAccessConditions: of}
}

func tagOf(tag *azcore.ETag) string {
	if tag == nil {
		return ""
	}
	return string(*tag)
}

// endDot replaces a dot at the end of a name: Azure drops such dots, so that two names would
// be one. See https://github.com/Azure/azure-sdk-for-java/issues/36674. Package objectmap
// escapes the percent sign of a key, and a dot only at its beginning.
const endDot = "%2E"

// blobOf returns the name of the blob of an object.
func blobOf(name string) string {
	if rest, ok := strings.CutSuffix(name, "."); ok {
		return rest + endDot
	}
	return name
}

// nameOf returns the name of the object of a blob.
func nameOf(blob string) string {
	rest, ok := strings.CutSuffix(blob, endDot)
	if !ok || strings.HasSuffix(rest, "/") {
		return blob // the key, or its last part, is a dot
	}
	return rest + "."
}
