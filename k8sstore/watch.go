// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"k8s.io/api/coordination/v1"
)

// setUpPatience bounds how long a watch may take to be set: a dead connection reports
// nothing.
const setUpPatience = 15 * time.Second

// watchSeconds is how long the API server keeps a watch. It ends a watch by itself after
// half an hour or more, but not a watch whose client is gone.
const watchSeconds = 1800

// Watch has hint called after each change of key that [driver.Watcher] names. It watches
// only the Lease of the key. The API server sends all changes of it, and the watch drops
// heartbeats.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("k8sstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	return s.life.Watch(ctx, hint, func(ctx context.Context, standing func()) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		late := time.AfterFunc(setUpPatience, end)
		defer late.Stop()
		return s.failed(s.watchOnce(ctx, key, hint, func() {
			late.Stop()
			standing()
		}))
	})
}

// watchEvent is an event of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watchOnce watches until the API server ends the watch, or the connection. It begins
// with a list, which returns the state of the namespace from which on the watch reports
// changes, also if there is no Lease yet.
func (s *Store) watchOnce(ctx context.Context, key string, hint, standing func()) error {
	only := "metadata.name=" + s.object(key)
	var list leaseList
	if err := s.calls.get(ctx, leases, s.namespace, "", url.Values{"fieldSelector": {only}}, &list); err != nil {
		return err
	}
	var mark string
	for i := range list.Items {
		mark = markOf(&list.Items[i])
	}
	stream, err := s.watches.stream(ctx, leases, s.namespace, url.Values{
		"watch": {"true"}, "fieldSelector": {only}, "resourceVersion": {list.Metadata.ResourceVersion},
		"timeoutSeconds": {strconv.Itoa(watchSeconds)},
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	standing()
	for events := json.NewDecoder(stream); ; {
		var event watchEvent
		if err := events.Decode(&event); err != nil {
			return fmt.Errorf("the watch has ended: %w", err)
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			var o v1.Lease
			if err := json.Unmarshal(event.Object, &o); err != nil {
				return err
			}
			if is := markOf(&o); is != mark {
				mark = is
				hint()
			}
		case "DELETED":
			mark = ""
			hint()
		case "BOOKMARK":
		default:
			return errors.New("the watch has ended: " + string(event.Object)) // the state is compacted, for example
		}
	}
}
