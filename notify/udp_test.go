// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func listen(t *testing.T, address string, o *Options) *UDP {
	t.Helper()
	u, err := Listen(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

// A datagram to an advertised address arrives.
func TestDatagramsArrive(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			if _, err := net.ListenPacket("udp", address); err != nil {
				t.Skipf("this machine has no such address: %v", err)
			}
			a, b := listen(t, address, nil), listen(t, address, nil)
			// On a busy machine a datagram may be lost: the test sends until one arrives.
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			go func() {
				for ctx.Err() == nil {
					_ = a.Send(b.Address(), []byte("hello"))
					wait(ctx, 10*time.Millisecond)
				}
			}()
			got, err := b.Receive(ctx)
			if err != nil || string(got) != "hello" {
				t.Errorf("received %q, %v", got, err)
			}
		})
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Receive returns when its context ends, each time, and with an error when the socket is
// closed.
func TestReceiveEnds(t *testing.T) {
	u := listen(t, "127.0.0.1:0", nil)
	for range 20 {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := u.Receive(ctx)
			done <- err
		}()
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("received: %v", err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := u.Receive(t.Context())
		done <- err
	}()
	_ = u.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("received from a closed socket: %v", err)
	}
}

// A record cannot have a process send to any address.
func TestSendRefuses(t *testing.T) {
	u := listen(t, "0.0.0.0:0", &Options{Advertise: "192.0.2.7:0"})
	for _, address := range []string{
		"", "udp://", "127.0.0.1:4711", "http://192.0.2.8:4711", "udp://example.com:4711", "udp://192.0.2.8", "udp://192.0.2.8:x",
		"udp://192.0.2.8:0", "udp://192.0.2.8:53", "udp://192.0.2.8:1023", "udp://192.0.2.8:99999",
		"udp://0.0.0.0:4711", "udp://0.1.2.3:4711", "udp://[::]:4711", "udp://224.0.0.1:4711", "udp://[ff02::1]:4711", "udp://255.255.255.255:4711",
		"udp://127.0.0.1:4711", "udp://[::1]:4711", "udp://[::ffff:127.0.0.1]:4711", "udp://[::ffff:224.0.0.1]:4711", "udp://[fe80::1%25eth0]:4711", "udp://[fe80::1%eth0]:4711",
	} {
		if err := u.Send(address, []byte("x")); err == nil || !strings.HasPrefix(err.Error(), "notify: ") {
			t.Errorf("sent to %q: %v", address, err)
		}
	}
	l := listen(t, "127.0.0.1:0", nil)
	if err := l.Send(l.Address(), make([]byte, maxMessage+1)); err == nil {
		t.Error("a message that is too long was sent")
	}
}

// A wildcard, or an address of several machines, is not advertised.
func TestListenChecksWhatItAdvertises(t *testing.T) {
	for _, tt := range []struct{ address, advertise, want string }{
		{"0.0.0.0:0", "", "wildcard"},
		{"[::]:0", "", "wildcard"},
		{"127.0.0.1:0", "0.0.0.0:0", "wildcard"},
		{"127.0.0.1:0", "224.0.0.1:0", "many machines"},
		{"127.0.0.1:0", "192.0.2.7:53", "below 1024"},
		{"127.0.0.1:53", "", "below 1024"},
		{"localhost:4711", "", "must be an IP address"},
		{"127.0.0.1", "", "must be an IP address"},
		{"[fe80::1%lo]:4711", "", "zone"},
		{"", "", "must be an IP address"},
	} {
		u, err := Listen(tt.address, &Options{Advertise: tt.advertise})
		if err == nil {
			_ = u.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("listen at %q, advertise %q: %v, want %q", tt.address, tt.advertise, err, tt.want)
		}
	}
	u := listen(t, "127.0.0.1:0", &Options{Advertise: "192.0.2.7:4711"})
	if got := u.Address(); got != "udp://192.0.2.7:4711" {
		t.Errorf("advertised %s", got)
	}
	u = listen(t, "0.0.0.0:0", &Options{Advertise: "192.0.2.7:0"})
	if got := u.Address(); !strings.HasPrefix(got, "udp://192.0.2.7:") || strings.HasSuffix(got, ":0") {
		t.Errorf("advertised %s", got)
	}
}

// The socket may not broadcast: the system refuses a broadcast address that looks
// like any other.
func TestSocketMayNotBroadcast(t *testing.T) {
	u := listen(t, "127.0.0.1:0", nil)
	if err := u.Send("udp://127.255.255.255:4711", []byte("x")); err == nil {
		t.Error("a broadcast was sent")
	}
}

func TestRouteTo(t *testing.T) {
	a, err := RouteTo(t.Context(), "127.0.0.1")
	if err != nil || a.String() != "127.0.0.1" {
		t.Errorf("route to this machine from %v, %v", a, err)
	}
	if a, err = RouteTo(t.Context(), "no such host"); err == nil {
		t.Errorf("route to nowhere from %v", a)
	}
}
