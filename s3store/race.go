// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver/objectmap"
)

// Race has 16 writers write one object of the bucket at the same time, for 20 rounds, through
// the clients in turn: see [objectmap.Race]. "tenure doctor" calls it, with a client for each
// address of the endpoint. It sends about 660 requests.
func Race(ctx context.Context, clients []*s3.Client, bucket string, options *Options) error {
	if len(clients) == 0 {
		return errors.New("s3store: a race without a client")
	}
	s, err := New(clients[0], bucket, options)
	if err != nil {
		return err
	}
	var ways []objectmap.Objects
	for _, client := range clients {
		ways = append(ways, newObjects(client, bucket))
	}
	const writers, rounds = 16, 20
	err = objectmap.Race(ctx, ways, s.Prefix(), writers, rounds)
	for _, way := range ways {
		err = errors.Join(err, way.Close())
	}
	return err
}
