// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"context"
	"errors"

	"cloud.google.com/go/storage"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
)

// Race has 16 writers write one object of the bucket at the same time, for 10 rounds, through
// the clients in turn: see [objectmap.Race]. It sends about 330 requests. An object is changed
// once a second at most, as the service asks for, so that it takes 20 s.
func Race(ctx context.Context, clients []*storage.Client, bucket string, options *Options) error {
	if len(clients) == 0 {
		return errors.New("gcsstore: the race needs a client")
	}
	s, err := New(clients[0], bucket, options)
	if err != nil {
		return err
	}
	var ways []objectmap.Objects
	for _, client := range clients {
		ways = append(ways, slowly{newObjects(client, bucket, nil)})
	}
	const writers, rounds = 16, 10
	return errors.Join(objectmap.Race(ctx, ways, s.Prefix(), writers, rounds), s.Close())
}

// slowly are objects that are changed or removed a second after they were made.
type slowly struct{ *objects }

func (s slowly) Put(ctx context.Context, name string, body []byte, tag string) (newTag string, err error) {
	if tag != "" {
		if err := sleep(ctx, writePause); err != nil {
			return "", driver.NotApplied(err)
		}
	}
	return s.objects.Put(ctx, name, body, tag)
}

func (s slowly) Delete(ctx context.Context, name, tag string) error {
	if err := sleep(ctx, writePause); err != nil {
		return driver.NotApplied(err)
	}
	return s.objects.Delete(ctx, name, tag)
}
