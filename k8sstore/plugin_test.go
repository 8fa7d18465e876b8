// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenurelock/tenure/driver"
)

// hangingPlugin returns a config with an exec plugin that hangs until the returned function
// is called, and then returns a token; and the number of sent requests.
func hangingPlugin(t *testing.T) (config *rest.Config, goOn func(), sent *atomic.Int64) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the plugin is a script of sh")
	}
	sent = &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusNotFound)
		fmt.Fprint(rw, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "x", "kind": "leases"}}`)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	wait, script := filepath.Join(dir, "wait"), filepath.Join(dir, "plugin")
	for file, text := range map[string]string{
		wait: "",
		script: `#!/bin/sh
while test -e "$1"; do sleep 0.02; done
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "sesame"}}'
`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	goOn = func() { _ = os.Remove(wait) } // it may be done already
	t.Cleanup(goOn)
	config = &rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ExecProvider: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: script, Args: []string{wait}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, sent} })
	return config, goOn, sent
}

// counted counts sent requests, also if their context has ended.
type counted struct {
	http.RoundTripper
	sent *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// inVain is for how long a call waits for a plugin that hangs.
const inVain = 200 * time.Millisecond

// TestPluginHangs: no call waits for a plugin for longer than its context, and no abandoned
// call is sent later.
func TestPluginHangs(t *testing.T) {
	config, goOn, sent := hangingPlugin(t)
	bound := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), inVain) }
	within := func(what string, call func() error) error {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- call() }()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			goOn()
			t.Fatalf("%s waits for the plugin", what)
			return nil
		}
	}
	err := within("Open", func() error {
		ctx, cancel := bound()
		defer cancel()
		s, err := Open(ctx, config, "default", nil)
		if err == nil {
			_ = s.Close() // it is wrong anyway
		}
		return err
	})
	want := fmt.Sprintf("getting credentials: the exec plugin %q has not ended: context deadline exceeded", config.ExecProvider.Command)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v; want %q, and that nothing was applied", err, want)
	}

	s, err := New(config, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := runtime.NumGoroutine()
	for i := range 20 {
		err := within("a call", func() error {
			ctx, cancel := bound()
			defer cancel()
			if i%2 == 0 {
				_, err := s.Get(ctx, "x", driver.Strong)
				return err
			}
			_, _, err := s.Claim(ctx, held("x"))
			return err
		})
		if !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	// One of the abandoned requests still waits, with its goroutine; a few more may be of
	// others.
	if more := runtime.NumGoroutine() - before; more > 8 {
		t.Errorf("20 calls have left %d goroutines", more)
	}
	if n := sent.Load(); n > 0 {
		t.Errorf("%d requests were sent without credentials", n)
	}

	goOn()
	err = within("a call with credentials", func() error {
		_, err := s.Get(t.Context(), "x", driver.Strong)
		return err
	})
	if !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("after the plugin has ended: %v", err)
	}
	if n := sent.Load(); n != 1 {
		t.Errorf("%d requests were sent; want that of the last call alone", n)
	}
}

// TestPluginIsAskedAgain: the plugin is asked again for refused credentials, before the
// refusal is reported; a plugin that hangs then blocks no call either.
func TestPluginIsAskedAgain(t *testing.T) {
	config, goOn, _ := hangingPlugin(t)
	goOn()
	s, err := Open(t.Context(), config, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refusing := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if err := os.WriteFile(config.ExecProvider.Args[0], nil, 0o600); err != nil { // it hangs from now on
			t.Error(err)
		}
		rw.WriteHeader(http.StatusUnauthorized)
	}))
	defer refusing.Close()
	other := rest.CopyConfig(config)
	other.Host = refusing.URL
	s2, err := New(other, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s2.Close()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), inVain)
		defer cancel()
		_, err := s2.Get(ctx, "x", driver.Strong)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || errors.Is(err, driver.ErrNotFound) {
			t.Errorf("refused credentials: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the call waits for the plugin")
	}
	goOn()
}
