// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"context"
	"maps"
	"sync"
	"time"
)

// writePause is the least time between two writes of an object that the service promises to
// let through.
const writePause = time.Second

// pace holds back the writes of an object after the service has refused a write as too
// soon. All methods may be called concurrently.
type pace struct {
	mu   sync.Mutex
	from map[string]time.Time // by the name: when it may be written again
}

// refused is called after such an answer.
func (p *pace) refused(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.from, func(_ string, from time.Time) bool { return !from.After(now) })
	if p.from == nil {
		p.from = map[string]time.Time{}
	}
	p.from[name] = now.Add(writePause)
}

// wait returns when the object may be written, or with the error of the context.
func (p *pace) wait(ctx context.Context, name string) error {
	p.mu.Lock()
	left := time.Until(p.from[name])
	p.mu.Unlock()
	if left <= 0 {
		return ctx.Err()
	}
	return sleep(ctx, left)
}

// sleep returns after a time, or with the error of the context.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
