// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
)

// maxBody is the longest body in bytes that is read: more than any record has.
const maxBody = 16 << 20

// contentType is what a browser shows as text.
const contentType = "application/json"

// objects are the objects of a bucket, for package objectmap.
type objects struct {
	client *s3.Client
	bucket string
	connections
}

func newObjects(client *s3.Client, bucket string) *objects {
	return &objects{client: client, bucket: bucket, connections: connectionsOf(client)}
}

// Get is a GetObject, which S3 answers strongly.
func (o *objects) Get(ctx context.Context, name string) (body []byte, tag string, err error) {
	// The body is read within the call, so that a truncated body is an error of the call.
	out, err := call(ctx, o, o.client.GetObject, &s3.GetObjectInput{Bucket: &o.bucket, Key: &name})
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(out.Body, maxBody+1))
		err = errors.Join(err, out.Body.Close())
	}
	switch {
	case codeOf(err) == noSuchKey:
		return nil, "", driver.ErrNotFound
	case err != nil:
		return nil, "", o.fault(ctx, err)
	case len(body) > maxBody:
		return nil, "", fmt.Errorf("bucket %q: object %q has more than %d bytes: it is not a record", o.bucket, name, maxBody)
	}
	return body, aws.ToString(out.ETag), nil
}

// Put is a PutObject under If-Match, or under If-None-Match. A checksum goes with it: a bucket
// with Object Lock refuses a write without one.
func (o *objects) Put(ctx context.Context, name string, body []byte, tag string) (newTag string, err error) {
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))
	in := &s3.PutObjectInput{
		Bucket: &o.bucket, Key: &name, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String(contentType), ChecksumCRC32: aws.String(base64.StdEncoding.EncodeToString(sum)),
	}
	if tag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &tag
	}
	out, err := call(ctx, o, o.client.PutObject, in)
	if err != nil {
		return "", o.writeFault(ctx, err, tag != "")
	}
	return aws.ToString(out.ETag), nil
}

// Delete is a DeleteObject, under If-Match if there is a tag.
func (o *objects) Delete(ctx context.Context, name, tag string) error {
	in := &s3.DeleteObjectInput{Bucket: &o.bucket, Key: &name}
	if tag != "" {
		in.IfMatch = &tag
	}
	_, err := call(ctx, o, o.client.DeleteObject, in)
	switch {
	case err == nil, codeOf(err) == noSuchKey && tag == "":
		return nil
	case codeOf(err) == "NotImplemented" && tag != "":
		return driver.Unsupported(o.fault(ctx, err))
	}
	return o.writeFault(ctx, err, tag != "")
}

// Names is a ListObjectsV2, which shows 1,000 names at most.
func (o *objects) Names(ctx context.Context, prefix, cursor string) (names []string, next string, err error) {
	in := &s3.ListObjectsV2Input{Bucket: &o.bucket, Prefix: &prefix}
	if cursor != "" {
		in.ContinuationToken = &cursor
	}
	out, err := call(ctx, o, o.client.ListObjectsV2, in)
	if err != nil {
		return nil, "", o.fault(ctx, err)
	}
	for _, object := range out.Contents {
		names = append(names, aws.ToString(object.Key))
	}
	if aws.ToBool(out.IsTruncated) {
		next = aws.ToString(out.NextContinuationToken)
	}
	return names, next, nil
}
