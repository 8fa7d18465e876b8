// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"

	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// atBucket is a command on the store of a bucket under way.
type atBucket struct {
	*tableRun
	url storeurl.S3
}

// noTableInBucket says that there is none to be made, or to be shown.
func noTableInBucket(atBucket) error {
	return usage("a bucket needs no table: tenure table policy prints the rights that a store there needs, and tenure doctor examines it")
}

// onBucket prints the least policy. Nothing is asked.
func (f *policyCmd) onBucket(a atBucket) error {
	bucket := "arn:" + partition(a.url.Region) + ":s3:::" + a.url.Bucket
	allow := func(sid, resource string, operations ...string) statement {
		s := statement{Sid: sid, Effect: "Allow", Resource: resource}
		for _, o := range operations {
			s.Action = append(s.Action, "s3:"+o)
		}
		return s
	}
	locks := allow("TenureLocks", bucket+"/"+a.url.Prefix()+"*", "DeleteObject", "GetObject", "PutObject")
	if f.ReadOnly {
		locks = allow("TenureLooks", bucket+"/"+a.url.Prefix()+"*", "GetObject")
	}
	text, err := json.MarshalIndent(policy{"2012-10-17", []statement{
		locks,
		// Without it S3 says of an object that is absent that access is denied.
		allow("TenureLists", bucket, "ListBucket"),
		allow("TenureDoctor", bucket, "GetBucketVersioning", "GetLifecycleConfiguration"),
	}}, "", "  ")
	if err != nil {
		return err // a policy of strings can always be written
	}
	return a.print(append(printable.JSON(text), '\n'))
}
