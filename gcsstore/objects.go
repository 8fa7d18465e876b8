// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
)

const (
	// maxBody is the longest body in bytes that is read: more than any record has.
	maxBody = 16 << 20
	// pageOfNames is how many names the service lists at once, at most.
	pageOfNames = 1000
	// contentType is what a browser shows as text.
	contentType = "application/json"
	// noCache keeps caches from an object that all may read: they would show it for an hour.
	noCache = "no-store"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// objects are the objects of a bucket, for package objectmap.
type objects struct {
	handle *storage.BucketHandle
	bucket string
	pace   pace
	*objectmap.Idle
}

// newObjects returns objects that close idle connections by drop. It may be nil.
func newObjects(client *storage.Client, bucket string, drop func()) *objects {
	// The client may send a write with a condition again. If it had been applied, its own
	// condition would then refuse it.
	handle := client.Bucket(bucket).Retryer(storage.WithPolicy(storage.RetryNever))
	return &objects{handle: handle, bucket: bucket, Idle: objectmap.NewIdle(drop)}
}

// conditions returns the conditions for a tag.
func conditions(tag string) (storage.Conditions, error) {
	if tag == "" {
		return storage.Conditions{DoesNotExist: true}, nil
	}
	generation, err := strconv.ParseInt(tag, 10, 64)
	if err != nil || generation <= 0 {
		return storage.Conditions{}, driver.NotApplied(fmt.Errorf("%q is not a generation of an object", tag))
	}
	return storage.Conditions{GenerationMatch: generation}, nil
}

// tagOf returns the tag of a generation, "" if the server has returned none.
func tagOf(generation int64) string {
	if generation <= 0 {
		return ""
	}
	return strconv.FormatInt(generation, 10)
}

// Get is a GET of the object, which the service answers strongly.
func (o *objects) Get(ctx context.Context, name string) (body []byte, tag string, err error) {
	r, err := o.handle.Object(name).NewReader(ctx)
	switch {
	case errors.Is(err, storage.ErrObjectNotExist) && !ofGRPC(err):
		return nil, "", driver.ErrNotFound
	case err != nil:
		return nil, "", o.fault(ctx, err)
	}
	defer r.Close() //nolint:errcheck // all was read, or an error is returned
	// When the answer is cut off, the client asks for the rest of that generation. If the
	// generation is gone, it reports that the object is gone: another may have taken its
	// place.
	body, err = io.ReadAll(io.LimitReader(r, maxBody+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("bucket %q: the answer about object %q was cut off: %w", o.bucket, name, brief(err))
	case len(body) > maxBody:
		return nil, "", fmt.Errorf("bucket %q: object %q has more than %d bytes: it is not a record", o.bucket, name, maxBody)
	}
	return body, tagOf(r.Attrs.Generation), nil
}

// Put is an upload under ifGenerationMatch.
func (o *objects) Put(ctx context.Context, name string, body []byte, tag string) (newTag string, err error) {
	when, err := conditions(tag)
	if err != nil {
		return "", err
	}
	if err := o.pace.wait(ctx, name); err != nil {
		return "", driver.NotApplied(err)
	}
	attrs, err := upload(ctx, o.handle.Object(name).If(when), body)
	if err != nil {
		err = o.writeFault(ctx, err)
		if errors.Is(err, driver.ErrThrottled) {
			o.pace.refused(name)
		}
		return "", err
	}
	return tagOf(attrs.Generation), nil
}

// upload sends a body in one request.
func upload(ctx context.Context, to *storage.ObjectHandle, body []byte) (*storage.ObjectAttrs, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := to.NewWriter(ctx)
	w.ChunkSize = 0 // else it keeps 16 MiB to send it again, and sends long bodies in parts
	w.ContentType, w.CacheControl = contentType, noCache
	// The server compares it with the received body, and writes only that.
	w.CRC32C, w.SendCRC32C = crc32.Checksum(body, castagnoli), true
	_, err := w.Write(body)
	// After an error of the write it does not end the body, and returns the server's error.
	if closed := w.Close(); closed != nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	return w.Attrs(), nil
}

// Delete removes the object, under ifGenerationMatch if there is a tag.
func (o *objects) Delete(ctx context.Context, name, tag string) error {
	object := o.handle.Object(name)
	if tag != "" {
		when, err := conditions(tag)
		if err != nil {
			return err
		}
		object = object.If(when)
	}
	err := object.Delete(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrObjectNotExist) && !ofGRPC(err):
		if tag != "" {
			return fmt.Errorf("%w: %w", objectmap.ErrMismatch, brief(err))
		}
		return nil
	}
	return o.writeFault(ctx, err)
}

// Names is a list, which shows 1,000 names at most.
func (o *objects) Names(ctx context.Context, prefix, cursor string) (names []string, next string, err error) {
	query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
	if err := query.SetAttrSelection([]string{"Name"}); err != nil {
		return nil, "", driver.NotApplied(err)
	}
	all := o.handle.Objects(ctx, query)
	page := all.PageInfo()
	page.Token, page.MaxSize = cursor, pageOfNames
	for first := true; first || page.Remaining() > 0; first = false {
		attrs, err := all.Next()
		switch {
		case errors.Is(err, iterator.Done):
			return names, "", nil
		case err != nil:
			return nil, "", o.fault(ctx, err)
		}
		names = append(names, attrs.Name)
	}
	return names, page.Token, nil
}
