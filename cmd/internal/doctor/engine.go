// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// Look makes the checks that are not made through the store: those of the clocks, the file and
// the engine. It opens no store, and writes no record. What is wrong is among the findings.
func Look(ctx context.Context, p Patient) []Finding {
	var found []Finding
	p.Tell = func(f Finding) { found = append(found, f) }
	for _, f := range clocks(p.Options.MaxClockDrift) {
		p.Tell(f)
	}
	if p.File != "" {
		p.file()
		p.blockers(ctx, false)
	}
	if p.Engine != nil {
		p.Engine.examine(ctx, &p)
	}
	return found
}

// EngineOf returns what is examined beside the store, nil if there is nothing.
func EngineOf(at storeurl.Location) Engine {
	if url, ok := at.DynamoDB(); ok {
		return DynamoDB{Table: url.Table, Options: url.Options, Connect: at.Connect}
	}
	if url, ok := at.Etcd(); ok {
		return Etcd{Options: url.Options, Config: url.Config}
	}
	if url, ok := at.ZooKeeper(); ok {
		return ZooKeeper{Hosts: url.Hosts, Options: url.Options}
	}
	if url, ok := at.Postgres(); ok {
		return Postgres{Options: url.Options, Pool: url.Pool}
	}
	if url, ok := at.S3(); ok {
		return Bucket{URL: url}
	}
	if url, ok := at.Kubernetes(); ok {
		return Kubernetes{Options: url.Options, Config: url.Config}
	}
	return nil
}
