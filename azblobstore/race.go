// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/driver/objectmap"
)

// Race has 16 writers write one blob of the container at the same time, for 20 rounds, through
// the clients in turn: see [objectmap.Race]. It sends about 660 requests. It is for servers
// that speak Azure's protocol, and are not Azure.
func Race(ctx context.Context, clients []*container.Client, options *Options) error {
	if len(clients) == 0 {
		return errors.New("azblobstore: the race needs a client")
	}
	s, err := New(clients[0], options)
	if err != nil {
		return err
	}
	var ways []objectmap.Objects
	for _, client := range clients {
		way, err := newObjects(client, nil)
		if err != nil {
			return err
		}
		ways = append(ways, way)
	}
	const writers, rounds = 16, 20
	return objectmap.Race(ctx, ways, s.Prefix(), writers, rounds)
}
