// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// plugin bounds requests whose credentials come from an exec plugin of the kubeconfig.
// client-go runs that program before it sends a request, one at a time, and waits for its
// end regardless of the context: without a bound a hanging plugin would block every call,
// and the opening of the store, for ever.
//
// It cannot end the program, which client-go has started. Abandoned requests keep waiting for
// it; as long as there is one, no other joins them. So there are never more than were under
// way when the plugin began to hang.
type plugin struct {
	next http.RoundTripper // asks the plugin, and then sends
	name string

	mu   sync.Mutex
	left int           // requests that were given up, and have not ended
	free chan struct{} // closed when the last of these has ended; nil if left is 0
}

// pluginError says that no credentials have come in time, and so nothing was sent.
type pluginError struct {
	name string
	err  error // of the context
}

func (e *pluginError) Error() string {
	// It begins as client-go's error of a plugin does.
	return fmt.Sprintf("getting credentials: the exec plugin %q has not ended: %v", e.name, e.err)
}

func (e *pluginError) Unwrap() error { return e.err }

// progress is the progress of a request.
type progress struct{ atomic.Int32 }

const (
	asking  int32 = iota // the plugin is asked, or waited for
	sending              // there are credentials
	givenUp              // there were none when the context ended: it must not be sent
)

type progressKey struct{}

// boundPlugin returns the client of a config, and bounds it if there is a plugin. The
// config must be the caller's own.
func boundPlugin(config *rest.Config) (*http.Client, error) {
	if config.ExecProvider == nil {
		return rest.HTTPClientFor(config)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return credited{next} })
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	bound := *h // it may be that of others
	bound.Transport = &plugin{next: h.Transport, name: config.ExecProvider.Command}
	return &bound, nil
}

// RoundTrip ends with the context of the request at the latest.
func (p *plugin) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	for free := p.behind(); free != nil; free = p.behind() {
		select {
		case <-free:
		case <-ctx.Done():
			closeBody(r)
			return nil, &pluginError{p.name, context.Cause(ctx)}
		}
	}
	type answer struct {
		*http.Response
		err error
	}
	at, got := &progress{}, make(chan answer, 1)
	go func() {
		a, err := p.next.RoundTrip(r.WithContext(context.WithValue(ctx, progressKey{}, at))) //nolint:bodyclose // the caller's, or below
		got <- answer{a, err}
	}()
	select {
	case a := <-got:
		return a.Response, a.err
	case <-ctx.Done():
	}
	p.leave()
	go func() {
		if a := <-got; a.err == nil {
			_ = a.Body.Close() // it is not read
		}
		p.ended()
	}()
	if at.CompareAndSwap(asking, givenUp) {
		return nil, &pluginError{p.name, context.Cause(ctx)}
	}
	return nil, context.Cause(ctx)
}

// WrappedRoundTripper is for [client.drop].
func (p *plugin) WrappedRoundTripper() http.RoundTripper { return p.next }

func (p *plugin) behind() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

func (p *plugin) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		p.free = make(chan struct{})
	}
	p.left++
}

func (p *plugin) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left--; p.left == 0 {
		close(p.free)
		p.free = nil
	}
}

// credited gets the requests that have credentials.
type credited struct{ next http.RoundTripper }

func (c credited) RoundTrip(r *http.Request) (*http.Response, error) {
	if at, ok := r.Context().Value(progressKey{}).(*progress); ok && !at.CompareAndSwap(asking, sending) && at.Load() == givenUp {
		closeBody(r)
		return nil, context.Cause(r.Context())
	}
	return c.next.RoundTrip(r)
}

// WrappedRoundTripper is for [client.drop].
func (c credited) WrappedRoundTripper() http.RoundTripper { return c.next }

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // it is in memory
	}
}
